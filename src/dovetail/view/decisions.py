"""The decision history as its ConfigMaps grow: only what was appended is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.history.store import lines
from dovetail.kube.reflector import CacheChange
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


def recent(decisions: Sequence[Decision]) -> tuple[RecentDecision, ...]:
    """The newest decisions about the fleet, newest first."""
    marked = (decision for decision in reversed(decisions) if decision.kind in MARKED)
    return tuple(
        RecentDecision(
            id=decision.id,
            kind=decision.kind,
            time=decision.time,
            summary=decision.summary,
            reason=decision.reason,
        )
        for decision in islice(marked, MAX_RECENT)
    )
