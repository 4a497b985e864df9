"""Carrying out a migration: look, decide, do one thing, look again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, TooManyRequests
from dovetail.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS, Resource
from dovetail.language import message
from dovetail.migration import next_action as actions
from dovetail.migration import record as records
from dovetail.migration.drain_blockers import MoveBlocker
from dovetail.migration.groups import Group, GroupBusy, GroupCalls, Sizes
from dovetail.migration.next_action import Action, Observed, next_action, release
from dovetail.migration.record import ALREADY_CORDONED, CORDONED, NAMESPACE, MigrationRecord, Phase
from dovetail.model.labels import NODEPOOL
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget

MANAGER = "dovetail-migrate"
LOOK_S = 5.0
#: How long nothing may change before a migration stops by itself.
STALL_S = 900.0
_KINDS: Mapping[str, Resource] = {"NodePool": NODEPOOLS, "EC2NodeClass": EC2NODECLASSES}


class RunOutcome(StrEnum):
    """How a run ended."""

    DONE = "Done"
    STOPPED = "Stopped"
    RESTORED = "Restored"
    REFUSED = "Refused"
    STALLED = "Stalled"


class MigrationResult(msgspec.Struct, frozen=True):
    outcome: RunOutcome
    why: str = ""
    blockers: tuple[MoveBlocker, ...] = ()


class MigrationProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done or is waited for, with the command that does the same."""

    action: str
    text: str
    command: str = ""


Report = Callable[[MigrationProgress], None]


class Migration:
    """One run: until the migration is done, stopped, or back, or nothing changes for too long."""

    def __init__(
        self,
        kube: Kube,
        cloud: GroupCalls,
        clock: Clock,
        report: Report,
        *,
        stall_s: float = STALL_S,
        namespace: str = NAMESPACE,
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._clock = clock
        self._report = report
        self._stall_s = stall_s
        self._namespace = namespace
        self._version = ""
        #: Sizes that were set and are not shown yet, and instances that were ended.
        self._asked: dict[str, Sizes] = {}
        self._terminated: set[str] = set()
        self._waiting_for = ""
        #: When something was last done.
        self._since = clock.monotonic()

    async def run(self) -> MigrationResult:
        while True:
            record, self._version = await records.read(self._kube, self._namespace)
            if record is None:
                return MigrationResult(RunOutcome.RESTORED)
            action = next_action(record, await self.observe(record))
            if isinstance(action, actions.Finish):
                return await self._finish(record, action)
            if isinstance(action, actions.Refuse):
                await self._abandon(record)
                return MigrationResult(RunOutcome.REFUSED, blockers=action.blockers)
            done = await self._do(action)
            if done:
                self._waiting_for, self._since = "", self._clock.monotonic()
                continue
            if self._clock.monotonic() - self._since >= self._stall_s:
                why = self._waiting_for
                if record.phase is not Phase.BACK:
                    await self._abandon(record)
                return MigrationResult(RunOutcome.STALLED, why)
            await asyncio.sleep(LOOK_S)

    async def observe(self, record: MigrationRecord) -> Observed:
        nodes = (await self._kube.list(NODES, type=Node)).items
        pods = (await self._kube.list(PODS, type=Pod)).items
        pdbs = (await self._kube.list(PDBS, type=PodDisruptionBudget)).items
        objects: dict[tuple[str, str], Mapping[str, Any]] = {}
        for kind, resource in _KINDS.items():
            for obj in await self._listed(resource):
                objects[kind, obj["metadata"]["name"]] = obj
        claims: dict[str, tuple[str, ...]] = {}
        for claim in await self._listed(NODECLAIMS):
            pool = (claim["metadata"].get("labels") or {}).get(NODEPOOL, "")
            claims[pool] = (*claims.get(pool, ()), claim["metadata"]["name"])
        groups = {group.name: group for group in await self._cloud.groups() if group.name in record.sizes}
        return Observed(
            now=self._clock.now(),
            groups=groups,
            nodes=tuple(nodes),
            pods=tuple(pods),
            pdbs=tuple(pdbs),
            objects=objects,
            claims=claims,
        )

    async def _listed(self, resource: Resource) -> list[dict[str, Any]]:
        try:
            return (await self._kube.list(resource)).items
        except NotFound:
            return []

    async def _finish(self, record: MigrationRecord, action: actions.Finish) -> MigrationResult:
        if action.forget:
            await records.forget(self._kube, self._namespace)
            return MigrationResult(RunOutcome.RESTORED)
        return MigrationResult(RunOutcome.DONE if record.phase is Phase.DONE else RunOutcome.STOPPED)

    async def _abandon(self, record: MigrationRecord) -> None:
        """Stop where we are: nodes that still stand take pods again."""
        while True:
            action = release(record, await self.observe(record))
            if action is None:
                break
            if not await self._do(action):
                await asyncio.sleep(LOOK_S)
        _, self._version = await records.read(self._kube, self._namespace)
        await self._do(actions.Remember(replace(record, phase=Phase.STOPPED, batch=(), owners=(), suspends={})))

    async def _do(self, action: Action) -> bool:
        """Do one thing; whether anything changed."""
        match action:
            case actions.Wait(what):
                self._wait(what)
                return False
            case actions.Evict(pods):
                return await self._evict(pods)
            case actions.Remember(record):
                await self._remember(record)
            case actions.SetSizes(group, sizes):
                return await self._set_sizes(action, group, sizes)
            case actions.Suspend() | actions.Resume():
                return await self._set_processes(action)
            case actions.Terminate(group, provider_id, node):
                return await self._terminate(action, group, provider_id, node)
            case _:
                await self._change_object(action)
        return True

    async def _set_sizes(self, action: Action, group: Group, sizes: Sizes) -> bool:
        """EKS shows new sizes some seconds after it took them; until then the same call is not made again."""
        text = message(
            "group {group}: min {least}, max {most}, desired {desired}",
            group=group.title,
            least=sizes.least,
            most=sizes.most,
            desired=sizes.desired,
        )
        if self._asked.get(group.name) == sizes:
            self._wait(text)
            return False
        try:
            await self._cloud.set_sizes(group, sizes)
        except GroupBusy as busy:
            self._wait(str(busy))
            return False
        self._asked[group.name] = sizes
        self._tell(action, text, self._cloud.set_sizes_command(group, sizes))
        return True

    async def _set_processes(self, action: actions.Suspend | actions.Resume) -> bool:
        group, processes = action.group, action.processes
        listed = ", ".join(processes)
        if isinstance(action, actions.Suspend):
            call, command = self._cloud.suspend, self._cloud.suspend_command(group, processes)
            text = message("group {group}: suspend {processes}", group=group.title, processes=listed)
        else:
            call, command = self._cloud.resume, self._cloud.resume_command(group, processes)
            text = message("group {group}: resume {processes}", group=group.title, processes=listed)
        try:
            await call(group, processes)
        except GroupBusy as busy:
            self._wait(str(busy))
            return False
        self._tell(action, text, command)
        return True

    async def _terminate(self, action: Action, group: Group, provider_id: str, node: str) -> bool:
        """Never twice: a second call would lower the desired capacity once more."""
        text = message("group {group}: terminate {node}", group=group.title, node=node or provider_id)
        if provider_id in self._terminated:
            self._wait(text)
            return False
        await self._cloud.terminate(group, provider_id)
        self._terminated.add(provider_id)
        self._asked.pop(group.name, None)
        self._tell(action, text, self._cloud.terminate_command(group, provider_id))
        return True

    async def _remember(self, record: MigrationRecord) -> None:
        try:
            await records.write(self._kube, record, self._version, self._namespace)
        except Conflict:
            return  # stopped meanwhile: the next look sees it
        self._tell_phase(record)

    async def _change_object(self, action: Action) -> None:
        match action:
            case actions.Cordon(node, group, already):
                self._tell(action, message("cordon node {node}", node=node), f"kubectl cordon {node}")
                marks = {CORDONED: ALREADY_CORDONED if already else group}
                body = {"metadata": {"annotations": marks}, "spec": {"unschedulable": True}}
                await self._patch_node(node, body)
            case actions.Uncordon(node, stays):
                self._tell(action, message("uncordon node {node}", node=node), f"kubectl uncordon {node}")
                spec = {} if stays else {"spec": {"unschedulable": None}}
                await self._patch_node(node, {"metadata": {"annotations": {CORDONED: None}}, **spec})
            case actions.CreateObject():
                kind, name = str(action.body["kind"]), str(action.body["metadata"]["name"])
                self._tell(action, message("create {kind} {name}", kind=kind, name=name), "kubectl create -f -")
                try:
                    await self._kube.create(_KINDS[kind], dict(action.body))
                except AlreadyExists:
                    return
            case actions.DeleteObject(kind, name):
                resource = _KINDS[kind]
                self._tell(
                    action,
                    message("delete {kind} {name}", kind=kind, name=name),
                    f"kubectl delete {resource.name} {name}",
                )
                try:
                    await self._kube.delete(resource, name)
                except NotFound:
                    return

    async def _patch_node(self, node: str, body: Mapping[str, Any]) -> None:
        try:
            await self._kube.patch(NODES, node, dict(body), manager=MANAGER)
        except NotFound:
            return  # it left meanwhile

    async def _evict(self, pods: tuple[Pod, ...]) -> bool:
        """Whether a pod could be evicted."""
        protected: list[str] = []
        evicted = 0
        for pod in pods:
            metadata = pod.metadata
            try:
                await self._kube.evict(metadata.name, metadata.namespace, metadata.uid)
            except TooManyRequests:
                protected.append(metadata.key)
                continue
            except (NotFound, Conflict):
                continue
            evicted += 1
            self._report(
                MigrationProgress(
                    action="Evict",
                    text=message("evict pod {pod} from node {node}", pod=metadata.key, node=pod.spec.node_name),
                    command=f"kubectl drain {pod.spec.node_name} --ignore-daemonsets",
                )
            )
        if not evicted and protected:
            names = ", ".join(protected[:3]) + (" …" if len(protected) > 3 else "")
            self._wait(message("PodDisruptionBudgets protect {pods}", pods=names))
            return False
        return True

    def _wait(self, what: str) -> None:
        if what != self._waiting_for:
            self._waiting_for = what
            self._report(MigrationProgress(action="Wait", text=message("waiting: {what}", what=what)))

    def _tell(self, action: Action, text: str, command: str = "") -> None:
        self._report(MigrationProgress(action=type(action).__name__, text=text, command=command))

    def _tell_phase(self, record: MigrationRecord) -> None:
        if record.phase is Phase.FORWARD and record.batch:
            text = message("drain {nodes}", nodes=", ".join(record.batch))
            self._report(MigrationProgress(action="Drain", text=text))
