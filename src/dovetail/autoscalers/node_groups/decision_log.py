"""Decisions about node groups for `dovetail history`, in a ConfigMap: what grew or shrank, for which pods, and why.

A role that may not write the ConfigMap goes without: the log and the events have the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.autoscalers.node_groups.actuation import Deletion
from dovetail.autoscalers.node_groups.balancing import Increase
from dovetail.autoscalers.node_groups.explanations import refusal as verdict_of
from dovetail.autoscalers.node_groups.scale_up import ScaleUpPlan
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.controllers.history.decisions import SHOWN, Decision, Refusal
from dovetail.controllers.history.store import GROUP_DECISIONS
from dovetail.controllers.provisioning.node_group_scale_ups import NOT_TRIGGERED
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound
from dovetail.kube.resources import CONFIGMAPS
from dovetail.language import source
from dovetail.model.meta import stamp

MAX_CHARS = 256 * 1024
_encode = msgspec.json.Encoder().encode


class NodeGroupDecisions:
    """`record` never waits; `save` writes what was recorded, and drops the oldest beyond the bound."""

    def __init__(self, kube: Kube, namespace: str, clock: Clock, chance: Chance, *, keep: bool = True) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._chance = chance
        self._unsaved: list[Decision] = []
        self._refused: set[tuple[str, str]] = set()
        self._keep = keep

    def scaled_up(self, plan: ScaleUpPlan, increases: Sequence[Increase], expander: str) -> None:
        sizes = ", ".join(f"{increase.group.id} {increase.current_size}->{increase.new_size}" for increase in increases)
        pods = [pod.metadata.key for pod in plan.triggered]
        self._record(
            "scale-up",
            source("{sizes} for {count} pod(s)").format(sizes=sizes, count=len(pods)),
            reason=expander,
            about=tuple(increase.group.id for increase in increases),
            pods=tuple(pods[:SHOWN]),
            pod_count=len(pods),
        )

    def scaled_down(self, deletion: Deletion, evictions: int) -> None:
        removed = source("node {node} removed, drained of {count} pod(s)")
        summary = removed if deletion.drain else source("node {node} removed, empty")
        self._record(
            "scale-down",
            summary.format(node=deletion.node, count=evictions),
            reason="Underutilized" if deletion.drain else "Empty",
            about=(deletion.group, deletion.node),
            removed=(deletion.node,),
            evictions=evictions,
        )

    def refused(self, plan: ScaleUpPlan) -> None:
        """Pods that no group can help, once for each pod and message."""
        by_message: dict[str, list[str]] = {}
        for refused in plan.refused:
            key = (refused.pod.metadata.uid, refused.message())
            if key not in self._refused and refused.message():
                by_message.setdefault(refused.message(), []).append(refused.pod.metadata.key)
        self._refused = {(refused.pod.metadata.uid, refused.message()) for refused in plan.refused}
        for message, pods in by_message.items():
            refusal = Refusal(
                pods=tuple(pods[:SHOWN]),
                count=len(pods),
                code=NOT_TRIGGERED,
                message=message,
                remedy=verdict_of(message.partition(" ")[2].partition(", ")[0]).remedy,
            )
            self._record(
                "refuse",
                source("{count} pod(s): {message}").format(count=len(pods), message=message),
                pods=tuple(pods[:SHOWN]),
                refusals=(refusal,),
            )

    def _record(
        self,
        kind: str,
        summary: str,
        *,
        reason: str = "",
        about: tuple[str, ...] = (),
        pods: tuple[str, ...] = (),
        pod_count: int = 0,
        removed: tuple[str, ...] = (),
        evictions: int = 0,
        refusals: tuple[Refusal, ...] = (),
    ) -> None:
        self._unsaved.append(
            Decision(
                id=f"d-{self._chance.suffix(8)}",
                kind=kind,
                time=stamp(self._clock.now()),
                summary=summary,
                reason=reason,
                subject="cluster-autoscaler",
                about=about,
                pods=pods,
                pod_count=pod_count,
                removed=removed,
                evictions=evictions,
                refusals=refusals,
            )
        )

    async def save(self) -> str:
        """Write what was recorded; why it could not be, or nothing."""
        if not self._keep:
            self._unsaved.clear()
        if not self._unsaved:
            return ""
        added = "".join(_encode(decision).decode() + "\n" for decision in self._unsaved)
        try:
            await self._append(added)
        except Forbidden:
            self._keep = False
            self._unsaved.clear()
            return f"decisions are not kept: let the role get and update ConfigMap {GROUP_DECISIONS}"
        except (AlreadyExists, Conflict):
            return ""  # another wrote it between our two requests; the next loop writes ours
        except KubeError as problem:
            return f"decisions are not kept yet: {problem}"
        self._unsaved.clear()
        return ""

    async def _append(self, added: str) -> None:
        try:
            there = await self._kube.get(CONFIGMAPS, GROUP_DECISIONS, self._namespace, type=dict)
        except NotFound:
            metadata = {"name": GROUP_DECISIONS, "namespace": self._namespace}
            await self._kube.create(CONFIGMAPS, {"metadata": metadata, "data": {"decisions": added}})
            return
        text = str((there.get("data") or {}).get("decisions", "")) + added
        while len(text) > MAX_CHARS:
            text = text.partition("\n")[2]
        await self._kube.update(CONFIGMAPS, {**there, "data": {"decisions": text}})
