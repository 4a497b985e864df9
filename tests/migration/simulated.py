"""Node groups and NodePools in one lab in virtual time, and migrations between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from dovetail.clock import run_virtual
from dovetail.cloud.aws import catalog
from dovetail.cloud.node_groups import InstanceState, NodeGroup
from dovetail.kube.client import Kube
from dovetail.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EC2NODECLASSES,
    NODECLAIMS,
    NODEPOOLS,
    NODES,
    PDBS,
    PODS,
    Resource,
)
from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.lab.scenario.processes import CrashInjection, ReplicaConnection
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups
from dovetail.migration import record as records
from dovetail.migration.carry_out import Migration, MigrationProgress, MigrationResult
from dovetail.migration.drain_blockers import EvictionRules
from dovetail.migration.groups import Group, Sizes
from dovetail.migration.plan import MigrationPlan, MigrationRequest, plan, record_of
from dovetail.migration.proposals import ProposalSettings
from dovetail.migration.record import MigrationRecord, Phase

REGION, ZONE = "ap-northeast-2", "ap-northeast-2a"
_READ: tuple[tuple[str, Resource], ...] = (
    ("v1", NODES),
    ("v1", PODS),
    ("policy/v1", PDBS),
    ("karpenter.sh/v1", NODEPOOLS),
    ("karpenter.sh/v1", NODECLAIMS),
    ("karpenter.k8s.aws/v1", EC2NODECLASSES),
)


class SimulatedGroupCalls:
    """`GroupCalls` on the simulated groups; every call counts as a write of the migration."""

    def __init__(self, groups: SimulatedGroups, injection: CrashInjection) -> None:
        self._groups, self._injection = groups, injection
        self.terminated: list[str] = []
        self.suspended: dict[str, frozenset[str]] = {}

    async def groups(self) -> Sequence[Group]:
        return [self._group(group) for group in self._groups.groups()]

    def _group(self, group: NodeGroup) -> Group:
        spec = self._groups.spec(group.id)
        states = {instance.provider_id: instance.state for instance in group.instances}
        return Group(
            name=group.id,
            sizes=Sizes(group.min_size, group.max_size, group.target_size),
            instances=tuple(name for name, state in states.items() if state is InstanceState.RUNNING),
            leaving=tuple(name for name, state in states.items() if state is InstanceState.DELETING),
            instance_types=(spec.instance_type,),
            capacity_types=(spec.capacity_type,),
            zones=spec.zones,
            suspended=self.suspended.get(group.id, frozenset()),
        )

    async def set_sizes(self, group: Group, sizes: Sizes) -> None:
        await self._groups.set_bounds(group.name, sizes.least, sizes.most, sizes.desired)
        await self._injection.count_call()

    async def suspend(self, group: Group, processes: Sequence[str]) -> None:
        self.suspended[group.name] = self.suspended.get(group.name, frozenset()) | {*processes}
        await self._injection.count_call()

    async def resume(self, group: Group, processes: Sequence[str]) -> None:
        self.suspended[group.name] = self.suspended.get(group.name, frozenset()) - {*processes}
        await self._injection.count_call()

    def suspend_command(self, group: Group, processes: Sequence[str]) -> str:
        return f"suspend {group.name} {' '.join(processes)}"

    def resume_command(self, group: Group, processes: Sequence[str]) -> str:
        return f"resume {group.name} {' '.join(processes)}"

    async def rebalance(self, name: str) -> str | None:
        """AZRebalance, unless it is suspended."""
        return None if "AZRebalance" in self.suspended.get(name, ()) else await self._groups.rebalance(name)

    async def terminate(self, group: Group, provider_id: str) -> None:
        self.terminated.append(provider_id)
        current = next(item for item in self._groups.groups() if item.id == group.name)
        await self._groups.delete(current, [provider_id])
        await self._injection.count_call()

    def set_sizes_command(self, group: Group, sizes: Sizes) -> str:
        return f"set {group.name} {sizes.least} {sizes.most} {sizes.desired}"

    def terminate_command(self, group: Group, provider_id: str) -> str:
        return f"terminate {provider_id}"


class Move:
    """A lab with groups, pods under PodDisruptionBudgets, and the means to migrate."""

    def __init__(self, lab: Lab, groups: SimulatedGroups, fleet: Autoscaled) -> None:
        self.lab, self.kube, self.groups, self.fleet = lab, lab.kube, groups, fleet
        self.killed = asyncio.Event()
        self.injection = CrashInjection(self.killed.set)
        self.cloud = SimulatedGroupCalls(groups, self.injection)
        self.client = Kube(
            ReplicaConnection(lab.transport, self.injection), lab.clock, chance=lab.chance.child("migrate")
        )
        self.reported: list[MigrationProgress] = []
        self.violations: list[str] = []
        self.watching: asyncio.Task[None] | None = None

    async def deploy(self, name: str, replicas: int, pdb: Any = 1, **spec: Any) -> None:
        """`pdb` is maxUnavailable of the PodDisruptionBudget; None for none."""
        labels = {"app": name}
        resources = {"requests": {"cpu": "600m", "memory": "512Mi"}}
        pod = {"containers": [{"name": "c", "image": "nginx", "resources": resources}], **spec}
        template = {"metadata": {"labels": labels}, "spec": pod}
        body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        await self.kube.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": body}, "default")
        if pdb is not None:
            budget = {"maxUnavailable": pdb, "selector": {"matchLabels": labels}}
            await self.kube.create(PDBS, {"metadata": {"name": name}, "spec": budget}, "default")

    async def manifests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for version, resource in _READ:
            items = (await self.kube.list(resource)).items
            found += [{"apiVersion": version, "kind": resource.kind, **item} for item in items]
        return found

    async def plan(self, request: MigrationRequest) -> MigrationPlan:
        types = tuple(kind for kind in catalog.load(REGION) if kind.name.split(".")[0] == "m5")
        return plan(await self.manifests(), await self.cloud.groups(), types, REGION, request, self.lab.clock.now())

    async def begin(self, request: MigrationRequest) -> None:
        planned = await self.plan(request)
        assert planned.blockers == ()
        await records.write(self.kube, record_of(planned, request, self.lab.clock.now()))
        self.watching = asyncio.create_task(self.watch_budgets())

    async def turn(self, phase: Phase) -> None:
        """What --stop and --back do first."""
        record, version = await records.read(self.kube)
        assert record is not None
        from msgspec.structs import replace

        await records.write(self.kube, replace(record, phase=phase), version)

    async def record(self) -> MigrationRecord | None:
        return (await records.read(self.kube))[0]

    async def run(self, crash_after: int = 0, stall_s: float = 900.0) -> MigrationResult | None:
        """One process of the migration; None if it was killed after so many writes."""
        self.killed.clear()
        self.injection.set(crash_after)
        migration = Migration(self.client, self.cloud, self.lab.clock, self.reported.append, stall_s=stall_s)
        work = asyncio.create_task(migration.run())
        killed = asyncio.create_task(self.killed.wait())
        await asyncio.wait((work, killed), return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if work.done():
            return work.result()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        return None

    async def watch_budgets(self) -> None:
        """Every PodDisruptionBudget, once a second: never fewer healthy pods than it wants."""
        while True:
            for pdb in (await self.kube.list(PDBS)).items:
                status = pdb.get("status") or {}
                if status.get("currentHealthy", 0) < status.get("desiredHealthy", 0):
                    self.violations.append(pdb["metadata"]["name"])
            await asyncio.sleep(1)

    async def state(self) -> dict[str, Any]:
        """What a migration and its way back must leave as it was."""
        nodes = (await self.kube.list(NODES)).items
        pods = (await self.kube.list(PODS, "default")).items
        return {
            "sizes": {group.id: (group.min_size, group.max_size, group.target_size) for group in self.groups.groups()},
            "nodes": len(nodes),
            "cordoned": sum(bool(node["spec"].get("unschedulable")) for node in nodes),
            "marked": sum("dovetail.sh/migrating-from" in (n["metadata"].get("annotations") or {}) for n in nodes),
            "pods": sorted(f"{pod['metadata']['labels']['app']} {pod['status']['phase']}" for pod in pods),
            "pools": [pool["metadata"]["name"] for pool in (await self.kube.list(NODEPOOLS)).items],
            "suspended": {name: sorted(processes) for name, processes in self.cloud.suspended.items() if processes},
            "claims": len((await self.kube.list(NODECLAIMS)).items),
            "records": sum(
                item["metadata"]["name"] == records.NAME
                for item in (await self.kube.list(CONFIGMAPS, "kube-system")).items
            ),
        }


REQUEST = MigrationRequest(keep=("system",), proposal=ProposalSettings(node_class="default", same_types=True))
FORCED = MigrationRequest(
    keep=("system",),
    eviction=EvictionRules(force=True, delete_emptydir_data=True),
    proposal=ProposalSettings(node_class="default", same_types=True),
)
SYSTEM = GroupSpec(name="system", instance_type="m5.large", min_size=1, max_size=1, size=1, zones=(ZONE,))


def group(name: str, size: int, **fields: Any) -> GroupSpec:
    return GroupSpec(name=name, min_size=1, max_size=6, size=size, zones=(ZONE,), **fields)


def play(body: Callable[[Move], Awaitable[None]], *specs: GroupSpec, seed: int = 1) -> None:
    async def main() -> None:
        async with Lab.embedded(seed) as lab:
            groups = SimulatedGroups(lab)
            for spec in (SYSTEM, *specs):
                await groups.create(spec)
            fleet = Autoscaled(AutoscalerRequest(families=("m5",), region=REGION))
            lab.add(fleet.run)
            move = Move(lab, groups, fleet)
            try:
                await asyncio.sleep(20)
                await body(move)
                assert move.violations == []
                assert move.watching is None or not move.watching.done()
            finally:
                if move.watching is not None:
                    move.watching.cancel()
                await groups.close()

    run_virtual(main())
