"""Actuation of a scale-down: taint, wait, drain, and end the instance. Each node is a task of its own.

Empty nodes are tainted and checked again before they go: a pod that slipped in keeps its node. A drain that does not
finish in its time gives the node back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from dovetail.autoscalers.node_groups.annotations import DELAY_DELETION_PREFIX, ENABLE_DAEMONSET_EVICTION
from dovetail.autoscalers.node_groups.budgets import GroupNodes, crop
from dovetail.autoscalers.node_groups.cluster_watch import ClusterWatch
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import DrainContext, DrainRules, PodsToMove, pods_to_move
from dovetail.autoscalers.node_groups.node_taints import mark_to_be_deleted, unmark_to_be_deleted
from dovetail.autoscalers.node_groups.removal import Removable
from dovetail.autoscalers.node_groups.utilization import Utilization
from dovetail.clock import Clock
from dovetail.cloud.node_groups import NodeGroup, NodeGroupCloud, NodeGroupError
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, KubeError, NotFound
from dovetail.model.pods import Pod

EVICTION_RETRY_S = 10.0
EVICTION_HEADROOM_S = 30.0
DEFAULT_GRACE_S = 30


class ActuationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say. Seconds."""

    max_parallelism: int = 10
    max_drain_parallelism: int = 1
    delay_after_taint_s: float = 5.0
    max_graceful_termination_s: float = 600.0
    max_pod_eviction_s: float = 120.0
    deletion_delay_timeout_s: float = 120.0
    cordon: bool = True
    daemonset_eviction_empty: bool = False
    daemonset_eviction_occupied: bool = True
    #: Pods of a lower priority keep no node and are not evicted: they end with it.
    expendable_cutoff: int = -10
    drain: DrainRules = DrainRules()


class Deletion(msgspec.Struct, frozen=True):
    """A node that is going."""

    node: str
    provider_id: str
    group: str
    drain: bool
    #: How many pods it is drained of.
    pods: int = 0


class DeletionFailed(Exception):
    """The node was not deleted; the text says why."""


class Reports(msgspec.Struct, frozen=True):
    """Whom to tell: events on nodes, pods and the status ConfigMap, log lines, evictions, nodes that went or stayed.

    `failed` hears that deletions could not be begun, `refused` that the cloud did not delete a node of a group,
    `unexpected` of an error that nothing explains.
    """

    node: Callable[[str, str, str, str], None]
    pod: Callable[[Pod, str, str, str], None]
    status: Callable[[str, str, str], None]
    log: Callable[[str], None]
    evicted: Callable[[bool], None]
    removed: Callable[[Deletion], None]
    failed: Callable[[], None]
    refused: Callable[[Deletion], None]
    unexpected: Callable[[str, Exception], None]


class Actuator:
    """Runs deletions in `tasks`; `deletions` are those under way."""

    def __init__(
        self,
        kube: Kube,
        cloud: NodeGroupCloud,
        watch: ClusterWatch,
        clock: Clock,
        settings: ActuationSettings,
        reports: Reports,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._watch = watch
        self._clock = clock
        self.settings = settings
        self._reports = reports
        self._tasks = tasks
        self.deletions: dict[str, Deletion] = {}
        #: Nodes that stay and still have the taint: the API server did not let it go.
        self.unreturned: set[str] = set()

    def count(self, group: str) -> int:
        return sum(deletion.group == group for deletion in self.deletions.values())

    def draining(self) -> list[str]:
        return [name for name, deletion in self.deletions.items() if deletion.drain]

    async def start(
        self,
        empty: Sequence[Removable],
        drain: Sequence[Removable],
        group_of: Callable[[str], tuple[NodeGroup, str] | None],
        utilization: Mapping[str, Utilization],
    ) -> list[Deletion]:
        """Begin what the budgets allow; the nodes are tainted when this returns."""
        draining = len(self.draining())
        allowed = crop(
            _grouped(empty, group_of),
            _grouped(drain, group_of),
            empty_in_progress=len(self.deletions) - draining,
            drain_in_progress=draining,
            max_parallelism=self.settings.max_parallelism,
            max_drain_parallelism=self.settings.max_drain_parallelism,
        )
        pods = {removable.node: removable.pods for removable in drain}
        begun: list[Deletion] = []
        for groups, draining_now in ((allowed.empty, False), (allowed.drain, True)):
            planned = [
                Deletion(name, member[1], entry.group.id, draining_now, len(pods.get(name, ())))
                for entry in groups
                for name in entry.nodes
                if (member := group_of(name)) is not None
            ]
            tainted = await self._taint_all(planned)
            if tainted is None:
                self._reports.failed()
                break
            for deletion in tainted:
                self._tell_start(deletion, pods.get(deletion.node, ()), utilization.get(deletion.node))
                self.deletions[deletion.node] = deletion
            begun += tainted
        for deletion in begun:
            self._tasks.create_task(self._run(deletion), name=f"delete {deletion.node}")
        return begun

    async def _taint_all(self, planned: Sequence[Deletion]) -> list[Deletion] | None:
        """Taint the nodes; those that are gone are left out. If one cannot be tainted, none is: that is None.

        A pod that leaves one of the nodes could otherwise come to the next one.
        """
        tainted: list[Deletion] = []
        for deletion in planned:
            cordon = self.settings.cordon
            try:
                there = await mark_to_be_deleted(self._kube, deletion.node, self._clock.now(), cordon=cordon)
            except KubeError as problem:
                message = f"failed to mark the node as toBeDeleted/unschedulable: {problem}"
                self._reports.node(deletion.node, "Warning", "ScaleDownFailed", message)
                for earlier in tainted:
                    await self._give_back(earlier)
                return None
            if there:
                self._reports.node(deletion.node, "Normal", "ScaleDown", "marked the node as toBeDeleted/unschedulable")
                tainted.append(deletion)
        return tainted

    def _tell_start(self, deletion: Deletion, pods: Sequence[Pod], utilization: Utilization | None) -> None:
        if deletion.drain:
            names = ",".join(pod.metadata.name for pod in pods)
            message = (
                f"Scale-down: removing node {deletion.node}, utilization: {utilization}, pods to reschedule: {names}"
            )
            self._reports.status("Normal", "ScaleDown", message)
        else:
            message = f'Scale-down: removing empty node "{deletion.node}"'
            self._reports.status("Normal", "ScaleDownEmpty", message)
        self._reports.log(message)

    async def _run(self, deletion: Deletion) -> None:
        try:
            await self._delete(deletion)
            self._tell_end(deletion)
            self._reports.removed(deletion)
        except Exception as problem:  # whatever it is, it ends neither the program nor another deletion
            if not isinstance(problem, DeletionFailed | NodeGroupError | KubeError):
                self._reports.unexpected(f"Scale-down: node {deletion.node}", problem)
            what = "drain and delete node" if deletion.drain else "delete empty node"
            self._reports.node(deletion.node, "Warning", "ScaleDownFailed", f"failed to {what}: {problem}")
            self._reports.log(f"Scale-down: couldn't delete node {deletion.node}: {problem}")
            await self._give_back(deletion)
        finally:
            self.deletions.pop(deletion.node, None)

    def _tell_end(self, deletion: Deletion) -> None:
        self._reports.node(deletion.node, "Normal", "ScaleDown", "nodes removed by cluster autoscaler")
        if deletion.drain:
            self._reports.status("Normal", "ScaleDown", f"Scale-down: node {deletion.node} removed with drain")
        else:
            self._reports.status("Normal", "ScaleDownEmpty", f"Scale-down: empty node {deletion.node} removed")

    async def _give_back(self, deletion: Deletion) -> None:
        try:
            await unmark_to_be_deleted(self._kube, deletion.node, cordon=self.settings.cordon)
        except KubeError as problem:
            self.unreturned.add(deletion.node)
            self._reports.log(f"taint of {deletion.node} not removed, the next loop tries again: {problem}")

    async def _delete(self, deletion: Deletion) -> None:
        if self.settings.delay_after_taint_s > 0:
            await asyncio.sleep(self.settings.delay_after_taint_s)
        moving = self._pods(deletion)
        if moving.blocking is not None:
            raise DeletionFailed(f"pod {moving.blocking.pod.metadata.key}: {moving.blocking.message}")
        if not deletion.drain and moving.pods:
            raise DeletionFailed(f'failed to delete empty node "{deletion.node}", new pods scheduled')
        if moving.on_completion:
            raise DeletionFailed(f"pod {moving.on_completion[0].metadata.key} has not completed")
        await self._drain(deletion, moving)
        await self._wait_for_delay(deletion.node)
        stale = self._watch.staleness()
        if stale:
            raise DeletionFailed(f"its pods are not known: {stale}")
        group = next((candidate for candidate in self._cloud.groups() if candidate.id == deletion.group), None)
        if group is None:
            raise DeletionFailed(f"group {deletion.group} is gone")
        try:
            await self._cloud.delete(group, [deletion.provider_id])
        except NodeGroupError as problem:
            self._reports.refused(deletion)
            raise DeletionFailed(f"failed to delete {deletion.node}: {problem}") from problem

    def _pods(self, deletion: Deletion) -> PodsToMove:
        """What moves now. For an empty node only its pods themselves are looked at: nothing is disrupted."""
        cutoff = self.settings.expendable_cutoff
        pods = [pod for pod in self._watch.pods_on(deletion.node) if (pod.spec.priority or 0) >= cutoff]
        if not deletion.drain:
            return pods_to_move(pods, self.settings.drain, DrainContext(self._clock.now(), RemainingPdbs()))
        budgets = RemainingPdbs(self._watch.pdbs.store)
        context = DrainContext(self._clock.now(), budgets, self._watch.controllers())
        return pods_to_move(pods, self.settings.drain, context)

    async def _drain(self, deletion: Deletion, moving: PodsToMove) -> None:
        """Evict them all. A pod of a DaemonSet goes with its node anyway: whether its eviction works is no matter."""
        pods = moving.pods
        evictions = [asyncio.create_task(self._evict(pod)) for pod in pods]
        daemonset_pods = self._daemonset_pods_to_evict(moving.daemonset_pods, deletion.drain)
        evictions += [asyncio.create_task(self._evict(pod, best_effort=True)) for pod in daemonset_pods]
        try:
            refusals = await asyncio.gather(*evictions)
        finally:
            for task in evictions:
                task.cancel()
        failed = [
            f"failed to evict pod {pod.metadata.key} within allowed timeout (last error: {_words(refusal)})"
            for pod, refusal in zip(pods, refusals, strict=False)
            if refusal is not None
        ]
        if failed:
            errors = " ".join(failed)
            raise DeletionFailed(f"Failed to drain node /{deletion.node}, due to following errors: [{errors}]")
        deadline = self._clock.monotonic() + self.settings.max_graceful_termination_s + EVICTION_HEADROOM_S
        while self._clock.monotonic() < deadline:
            if not any(self._is_there(pod) for pod in pods):
                return
            await asyncio.sleep(1.0)
        left = [pod.metadata.key for pod in pods if self._is_there(pod)]
        if left:
            remaining = "pods remaining after timeout"
            raise DeletionFailed(f"Failed to drain node /{deletion.node}: {remaining}: {', '.join(left)}")

    def _grace(self, pod: Pod) -> float:
        own = pod.spec.termination_grace_period_seconds
        return min(float(DEFAULT_GRACE_S if own is None else own), self.settings.max_graceful_termination_s)

    def _is_there(self, pod: Pod) -> bool:
        stored = self._watch.pods.store.get(pod.metadata.key)
        return stored is not None and stored.metadata.uid == pod.metadata.uid and stored.spec.node_name != ""

    async def _evict(self, pod: Pod, *, best_effort: bool = False) -> KubeError | None:
        """Ask until it is granted or the time is up; the last refusal, if that is how it ended."""
        deadline = self._clock.monotonic() + self.settings.max_pod_eviction_s
        grace = int(self._grace(pod))
        meta = pod.metadata
        self._reports.pod(pod, "Normal", "ScaleDown", "deleting pod for node scale down")
        while True:
            try:
                await self._kube.evict(meta.name, meta.namespace, uid=meta.uid or None, grace=grace)
                break
            except NotFound:
                break
            except KubeError as problem:
                refusal = problem
            await asyncio.sleep(EVICTION_RETRY_S)
            if self._clock.monotonic() >= deadline:
                self._reports.log(f"Failed to evict pod {meta.key}, error: {refusal}")
                if not best_effort:
                    self._reports.pod(pod, "Warning", "ScaleDownFailed", "failed to delete pod for ScaleDown")
                    self._reports.evicted(False)
                return refusal
        if not best_effort:
            self._reports.evicted(True)
        return None

    def _daemonset_pods_to_evict(self, pods: Sequence[Pod], drain: bool) -> list[Pod]:
        evict_by_default = (
            self.settings.daemonset_eviction_occupied if drain else self.settings.daemonset_eviction_empty
        )
        return [
            pod
            for pod in pods
            if (own := pod.metadata.annotations.get(ENABLE_DAEMONSET_EVICTION)) == "true"
            or (evict_by_default and own != "false")
        ]

    async def _wait_for_delay(self, node: str) -> None:
        """Another controller may hold the node by an annotation, for a while."""
        deadline = self._clock.monotonic() + self.settings.deletion_delay_timeout_s
        while True:
            if not self._is_delayed(node) or self._clock.monotonic() >= deadline:
                return
            await asyncio.sleep(1.0)

    def _is_delayed(self, node: str) -> bool:
        stored = self._watch.nodes.store.get(node)
        return stored is not None and any(key.startswith(DELAY_DELETION_PREFIX) for key in stored.metadata.annotations)


def _words(refusal: KubeError) -> str:
    """What the API server said; the request is known."""
    return refusal.message if isinstance(refusal, ApiError) else str(refusal)


def _grouped(
    removable: Sequence[Removable], group_of: Callable[[str], tuple[NodeGroup, str] | None]
) -> list[GroupNodes]:
    """Nodes by group, in the order in which each group's first node came."""
    nodes_by_group: dict[str, tuple[NodeGroup, list[str]]] = {}
    for entry in removable:
        member = group_of(entry.node)
        if member is not None:
            nodes_by_group.setdefault(member[0].id, (member[0], []))[1].append(entry.node)
    return [GroupNodes(group, tuple(names)) for group, names in nodes_by_group.values()]
