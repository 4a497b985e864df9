"""What `explain`, `history` and `plan` share: a connection, the cluster read once, its decision history."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dovetail.cli.terminal import waiting
from dovetail.cluster.state import ClusterState
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.history.store import GROUP_DECISIONS, LABEL, NAMESPACE, lines
from dovetail.errors import UserError
from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.transport import LAB_TIME, Request, Transport
from dovetail.language import message
from dovetail.runfile import NotOneLab, RunningLab, choose, running

if TYPE_CHECKING:
    from dovetail.model.nodes import Lease


# Which cluster a command asks when none is named: kubectl's, and where kubectl has none, the lab that runs here.


def lab(name: str | None) -> RunningLab:
    """The lab that is meant; a Problem says which there are."""
    try:
        return choose(name)
    except NotOneLab as problem:
        raise UserError(str(problem)) from problem


def kubeconfig(named: str | None, name: str | None = None) -> str | None:
    """The file to read: `named`, or that of the lab called `name`; None is what kubectl would choose."""
    if name is not None:
        if named is not None:
            raise UserError(message("--name and --kubeconfig both say which cluster; leave one of them out"))
        return lab(name).kubeconfig
    if named is not None or os.environ.get("KUBECONFIG") or (Path.home() / ".kube" / "config").exists():
        return named
    if "KUBERNETES_SERVICE_HOST" in os.environ or not running():
        return None
    return lab(None).kubeconfig


async def aws_region(given: str | None, kube: Kube, server: str) -> str:
    """As given, as the AWS command's, or as the cluster tells it; empty where none does."""
    import boto3

    from dovetail.install.cluster_region import cluster_region

    return given or boto3.session.Session().region_name or await cluster_region(kube, server)


async def needed_region(given: str | None, kube: Kube, server: str) -> str:
    region = await aws_region(given, kube, server)
    if not region:
        raise UserError(message("--region: is not set; give it here, or set AWS_REGION"))
    return region


@contextmanager
def cluster_errors() -> Iterator[None]:
    """One line with the way out for what goes wrong between a command and its cluster."""
    from dovetail.kube.credentials import ConfigError
    from dovetail.kube.errors import Disconnected, KubeError

    try:
        yield
    except Disconnected as problem:
        raise UserError(
            message("{problem}; start it, or name another with --kubeconfig or --context", problem=problem)
        ) from problem
    except (ConfigError, KubeError) as problem:
        raise UserError(str(problem)) from problem


def refuse_with_recording(given: Mapping[str, str | None], shown: str = "--recording") -> None:
    """Options that say something of a cluster: with a recording or a scenario, `shown`, there is none."""
    for option, value in given.items():
        if value is not None:
            raise UserError(
                message("{option}: leave it out with {shown}, which is no cluster", option=option, shown=shown)
            )


T = TypeVar("T")
#: How long reading a cluster may take, in seconds, and how often we look whether it is done.
PATIENCE, LOOK = 30.0, 0.2


class NotServed(Exception):
    """A kind that we read is not served."""

    def __init__(self, kind: str) -> None:
        ours = "karpenter" in kind
        way_out = (
            message("dovetail crds | kubectl apply -f - installs it")
            if ours
            else message("is it a Kubernetes API server?")
        )
        super().__init__(message("the cluster does not know {kind}: {way_out}", kind=kind, way_out=way_out))


class ClusterSession:
    """One look at a cluster."""

    def __init__(self, kube: Kube, cluster_state: ClusterState, now: datetime) -> None:
        self.kube = kube
        self.cluster_state = cluster_state
        self.now = now

    async def decisions(self, namespace: str | None = None) -> list[Decision]:
        """Every decision that is still kept, oldest first: in the namespace given, or where the controller leads."""
        from dovetail.kube.resources import CONFIGMAPS

        decisions: list[Decision] = []
        for where in [namespace] if namespace else await self._led_from():
            for config_map in (await self.kube.list(CONFIGMAPS, where, labels=f"{LABEL}=true")).items:
                decisions.extend(lines((config_map.get("data") or {}).get("decisions", "")))
        decisions += await self._group_decisions(namespace or NAMESPACE)
        return sorted(decisions, key=lambda decision: decision.time)

    async def _group_decisions(self, namespace: str) -> list[Decision]:
        """What `dovetail cluster-autoscaler` decided."""
        from dovetail.kube.resources import CONFIGMAPS

        try:
            kept = await self.kube.get(CONFIGMAPS, GROUP_DECISIONS, namespace)
        except (NotFound, Forbidden):
            return []
        return lines((kept.get("data") or {}).get("decisions", ""))

    async def _led_from(self) -> list[str]:
        """The namespaces that have the controller's lease; the default one where none is to be seen."""
        leases = await self._leases()
        return sorted({lease.metadata.namespace for lease in leases or ()}) or [NAMESPACE]

    async def _leases(self) -> list[Lease] | None:
        """The leases of controllers; None if we may not read them."""
        from dovetail.controllers.settings import Settings
        from dovetail.kube.resources import LEASES
        from dovetail.model.nodes import Lease

        named = f"metadata.name={Settings().leader_election_name}"
        try:
            return (await self.kube.list(LEASES, fields=named, type=Lease)).items
        except Forbidden:
            return None

    async def no_autoscaler(self) -> str:
        """That no autoscaler acts, if a lease says so; without the right to read leases nothing is reported."""
        from dovetail.controllers.explain import no_autoscaler

        leases = await self._leases()
        return no_autoscaler(leases, self.now) if leases is not None else ""

    async def read(self) -> None:
        """Fill the cluster state. A kind that the server does not know will not come while we wait."""
        async with self.following():
            pass

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """The cluster state follows the cluster while the block runs."""
        running = asyncio.create_task(self.cluster_state.run(), name="cluster-state")
        try:
            async with asyncio.timeout(PATIENCE):
                while not self.cluster_state.synced.is_set():
                    await asyncio.sleep(LOOK)
                    self._check()
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])

    def _check(self) -> None:
        for kind, why in self.cluster_state.failures().items():
            if isinstance(why, NotFound):
                raise NotServed(kind)


async def server_time(transport: Transport) -> datetime | None:
    """What time it is for the server, which dated all that we read: a lab's time may run faster than ours."""
    headers = (await transport.send(Request(method="GET", path="/version"))).headers
    said = headers.get(LAB_TIME) or headers.get("date")
    return parsedate_to_datetime(said) if said else None


def ask(
    kubeconfig: str | None,
    context: str | None,
    question: Callable[[ClusterSession], Awaitable[T]],
    *,
    progress: bool = True,
) -> T:
    """Connect, ask, and turn what goes wrong into one line. `progress` is False where the caller shows its own."""
    from dovetail.chance import Chance, system_seed
    from dovetail.cli import cluster_session
    from dovetail.cli.terminal import quiet_logs
    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.config import load

    quiet_logs()

    async def main() -> T:
        transport = load(cluster_session.kubeconfig(kubeconfig), context).transport()
        try:
            clock = Clock(asyncio.get_running_loop(), await server_time(transport))
            kube = Kube(transport, clock, chance=Chance(system_seed()))
            return await question(ClusterSession(kube, ClusterState(kube, clock), clock.now()))
        finally:
            await transport.close()

    try:
        with waiting(message("asking the cluster …")) if progress else nullcontext(), cluster_errors():
            return run_scaled(main())
    except NotServed as problem:
        raise UserError(str(problem)) from problem
    except TimeoutError as problem:
        raise UserError(message("the cluster did not answer within {patience:.0f} s", patience=PATIENCE)) from problem
