"""The ways to the cluster and to AWS of `dovetail migrate`, and what it reads before it plans."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from dovetail.chance import Chance, system_seed
from dovetail.cli import cluster_session
from dovetail.cli.cluster_objects import manifests
from dovetail.cli.cluster_session import ClusterSession, NotServed, server_time
from dovetail.clock import Clock, run_scaled
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, message_of
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import SILENT
from dovetail.errors import UserError
from dovetail.install.discovery import DiscoveryError, cluster_of
from dovetail.install.iam import Site
from dovetail.install.steps import Account
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.kube.credentials import ConfigError
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.lease import LeaderElection
from dovetail.kube.resources import LEASES
from dovetail.language import message
from dovetail.migration import record as records
from dovetail.migration.aws_groups import AwsGroups, cluster_security_groups, with_security_groups
from dovetail.migration.carry_out import LOOK_S, Migration, MigrationProgress, MigrationResult
from dovetail.migration.plan import PROVISIONER_LABEL, MigrationPlan, MigrationRequest, UnknownGroup, plan
from dovetail.migration.proposals import ProposalSettings
from dovetail.migration.record import NAME, NAMESPACE, Phase
from dovetail.model.nodes import Lease

T = TypeVar("T")
#: A process that was killed holds the lease for so long, and some.
LEASE_PATIENCE_S = 30.0


class MigrationSession(msgspec.Struct, frozen=True, kw_only=True):
    """Open connections, and the cluster they are about."""

    kube: Kube
    calls: Calls
    clock: Clock
    cluster: str
    groups: AwsGroups

    async def plan(self, request: MigrationRequest, node_role: str) -> MigrationPlan:
        """Read the cluster and its groups, and plan."""
        from dovetail.cloud.aws import catalog

        now = self.clock.now()
        read = await manifests(ClusterSession(self.kube, ClusterState(self.kube, self.clock), now))
        groups = await self.groups.groups()
        if not all(group.security_groups for group in groups):
            groups = with_security_groups(groups, await cluster_security_groups(self.calls, self.cluster))
        settings = _with_cluster(request.proposal, read, node_role, self.cluster)
        complete = msgspec.structs.replace(
            request, proposal=settings, has_provisioner=await self._has_provisioner(read)
        )
        try:
            return plan(read, groups, catalog.load(self.calls.region), self.calls.region, complete, now)
        except UnknownGroup as problem:
            raise UserError(str(problem)) from problem

    async def _has_provisioner(self, read: list[dict[str, Any]]) -> bool:
        """By a lease that is renewed, or by a pod that runs; without the right to read leases it is believed."""
        from dovetail.controllers.settings import Settings

        label, name = PROVISIONER_LABEL
        for obj in read:
            running = obj["kind"] == "Pod" and (obj.get("status") or {}).get("phase") == "Running"
            if running and (obj["metadata"].get("labels") or {}).get(label) == name:
                return True
        named = f"metadata.name={Settings().leader_election_name}"
        try:
            leases = (await self.kube.list(LEASES, fields=named, type=Lease)).items
        except Forbidden:
            return True
        renewed = [lease.spec.renew_time for lease in leases if lease.spec.renew_time is not None]
        return any(self.clock.now() - time <= SILENT for time in renewed)

    async def carry_out(self, report: Callable[[MigrationProgress], None], stall_s: float) -> MigrationResult:
        """Run the migration that is recorded; only one process does so at a time."""
        election = LeaderElection(self.kube, NAME, NAMESPACE, f"{os.uname().nodename}_{os.getpid()}")
        try:
            async with asyncio.timeout(LEASE_PATIENCE_S):
                await election.acquire()
        except TimeoutError as late:
            raise UserError(
                message(
                    "another process ({holder}) carries out the migration; wait for it, or end it with --stop",
                    holder=election.holder,
                )
            ) from late
        results: list[MigrationResult] = []

        async def lead() -> None:
            migration = Migration(self.kube.fenced(election.check), self.groups, self.clock, report, stall_s=stall_s)
            results.append(await migration.run())

        await election.run(lead)
        return results[0]


async def wait_for_end(session: MigrationSession, timeout_s: float) -> bool:
    """Wait until the process that carries out the migration has stopped; False where no process does."""
    until = session.clock.monotonic() + timeout_s
    while session.clock.monotonic() < until:
        record, _ = await records.read(session.kube)
        if record is None or record.phase is Phase.STOPPED:
            return True
        try:
            lease = await session.kube.get(LEASES, NAME, NAMESPACE, type=Lease)
        except NotFound:
            return False
        renewed = lease.spec.renew_time
        lease_duration = timedelta(seconds=lease.spec.lease_duration_seconds)
        if not lease.spec.holder_identity or renewed is None or session.clock.now() > renewed + lease_duration:
            return False
        await asyncio.sleep(LOOK_S)
    raise UserError(message("the migration did not stop within {seconds:g} s; its process goes on", seconds=timeout_s))


def _with_cluster(
    settings: ProposalSettings, read: list[dict[str, Any]], node_role: str, cluster: str
) -> ProposalSettings:
    """The role that the controller may pass already, and the names that are taken."""
    classes = [obj for obj in read if obj["kind"] == "EC2NodeClass"]
    names = frozenset(obj["metadata"]["name"] for obj in read if obj["kind"] in ("NodePool", "EC2NodeClass"))
    if settings.node_class and settings.node_class not in {obj["metadata"]["name"] for obj in classes}:
        raise UserError(
            message("--node-class {name}: the cluster has no EC2NodeClass of that name", name=settings.node_class)
        )
    specs = [obj.get("spec") or {} for obj in classes]
    role = node_role or next((str(spec["role"]) for spec in specs if spec.get("role")), "")
    profile = "" if role else next((str(spec["instanceProfile"]) for spec in specs if spec.get("instanceProfile")), "")
    if not (role or profile):
        role = Site(cluster=cluster, region="", account="").node_role  # as `dovetail install` calls it
    return msgspec.structs.replace(settings, role=role, instance_profile=profile, taken=names)


def converse(
    talk: Callable[[MigrationSession], Awaitable[T]],
    *,
    cluster: str | None,
    region: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> T:
    """Open both connections and talk; every expected failure becomes one line with the way out."""
    from botocore.exceptions import BotoCoreError, ClientError

    from dovetail.cli.terminal import quiet_logs

    quiet_logs()

    async def main() -> T:
        connection = load(cluster_session.kubeconfig(kubeconfig), context)
        transport = connection.transport()
        clock = Clock(asyncio.get_running_loop(), await server_time(transport))
        kube = Kube(transport, clock, chance=Chance(system_seed()), manager="dovetail-migrate")
        try:
            chosen = await cluster_session.needed_region(region, kube, connection.server)
            with closing(Calls(clock, region=chosen, endpoint=os.environ.get("AWS_ENDPOINT_URL"))) as calls:
                name = cluster or await cluster_of(Account(calls, kube), connection.server)
                groups = AwsGroups(calls, name)
                return await talk(MigrationSession(kube=kube, calls=calls, clock=clock, cluster=name, groups=groups))
        finally:
            with suppress(KubeError):
                await kube.close()

    try:
        return run_scaled(main())
    except (ConfigError, DiscoveryError, KubeError, NotServed) as problem:
        raise UserError(str(problem)) from problem
    except (BotoCoreError, ClientError) as problem:
        raise UserError(f"AWS: {code_of(problem)}: {message_of(problem)}") from problem
