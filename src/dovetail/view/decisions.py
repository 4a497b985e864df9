"""The decision history as its ConfigMaps grow: only what was appended is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.history.store import lines
from dovetail.kube.reflector import CacheChange
from dovetail.language import message, plural
from dovetail.view.model import RecentDecision

MAX_DECISIONS = 5000
#: Kinds of decisions that change the fleet, or say why it is not changed. That a node stays as it is, is neither.
MARKED = frozenset(
    (
        "provision",
        "refuse",
        "disrupt",
        "undo",
        "end",
        "unhealthy",
        "safe-mode",
        "drift-stop",
        "scale-up",
        "scale-down",
    )
)
MAX_RECENT = 6
#: Nodes and instance types that a sentence names.
MAX_NAMED = 3


class DecisionLog:
    """Decisions of one or more namespaces, oldest first."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._of: dict[str, list[Decision]] = {}
        self._sorted: tuple[Decision, ...] | None = ()

    def take(self, change: CacheChange[dict[str, Any]]) -> None:
        """A ConfigMap was created, appended to, rewritten or deleted."""
        if change.new is None:
            self._texts.pop(change.key, None)
            self._of.pop(change.key, None)
        else:
            self._read(change.key, change.new)
        self._sorted = None

    def _read(self, key: str, obj: Mapping[str, Any]) -> None:
        text: str = (obj.get("data") or {}).get("decisions", "")
        old = self._texts.get(key, "")
        if old and text.startswith(old) and old.endswith("\n"):
            self._of[key].extend(lines(text[len(old) :]))
        else:
            self._of[key] = lines(text)
        self._texts[key] = text

    def all(self) -> tuple[Decision, ...]:
        if self._sorted is None:
            decisions = [decision for decisions in self._of.values() for decision in decisions]
            self._sorted = tuple(sorted(decisions, key=lambda decision: decision.time)[-MAX_DECISIONS:])
        return self._sorted


def summary_of(decision: Decision) -> str:
    """What was decided, in a sentence. The recorded line of a disruption is the one that runbooks grep for."""
    if decision.kind != "disrupt" or not decision.removed:
        return decision.summary
    nodes = _listed([host(name) for name in decision.removed])
    facts = {"reason": decision.reason, "nodes": nodes}
    if decision.node_claims:
        kinds = _listed([made.instance_type for made in decision.node_claims])
        parts = [message("{reason}: replace {nodes} with {types}", **facts, types=kinds)]
    else:
        parts = [message("{reason}: remove {nodes}", **facts)]
    if decision.evictions:
        parts.append(plural("{n} pod moves", "{n} pods move", n=decision.evictions))
    if decision.before is not None and decision.cost is not None and decision.before > decision.cost:
        parts.append(message("saves ${saved}/h", saved=f"{decision.before - decision.cost:.4f}"))
    return "; ".join(parts)


def host(name: str) -> str:
    """A node's name without its domain, which all hosts of a cluster share."""
    return name.partition(".")[0] if name.endswith(".internal") else name


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown}, … ({len(names)})"


def recent(decisions: Sequence[Decision]) -> tuple[RecentDecision, ...]:
    """The newest decisions about the fleet, newest first."""
    marked = (decision for decision in reversed(decisions) if decision.kind in MARKED)
    return tuple(
        RecentDecision(
            id=decision.id,
            kind=decision.kind,
            time=decision.time,
            summary=summary_of(decision),
            reason=decision.reason,
        )
        for decision in islice(marked, MAX_RECENT)
    )
