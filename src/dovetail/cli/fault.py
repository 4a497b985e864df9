"""`dovetail fault KIND`: break something in a running lab, for a while."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.recognition import recognized

if TYPE_CHECKING:
    from dovetail.kube.client import Kube
    from dovetail.kube.transport import Response
    from dovetail.lab.faults.kinds import InjectedFault


@click.command()
@click.argument("kind", required=False)
@click.option(
    "--node",
    default="",
    help="A node by name or number (counted round), or * for all of them; the first that can be struck by default.",
)
@click.option(
    "--for",
    "lasting",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="How long by the lab's clock, as 90s or 5m; 0: until mended.",
)
@click.option("--name", default=None, metavar="LAB", help="The lab to break it in, where several run.")
@click.option("--amount", default=0.0, help="Seconds of delay or skew, or the share of requests or events.")
def fault(kind: str | None, node: str, lasting: str, name: str | None, amount: float) -> None:
    """Break something in a running lab.

    KIND is kubelet-silent, instance-gone, clock-skew, api-slow, api-down, api-throttled, conflict-storm, watch-cut,
    watch-stale, watch-drop, watch-twice or watch-gulps; with AWS spot-interruption, status-checks, aws-denied,
    aws-throttled, sold-out or az-rebalance. Without a KIND: what is broken now. The KIND mend ends all of it.
    """
    from dovetail.cli import cluster_session
    from dovetail.lab.durations import seconds
    from dovetail.lab.faults.kinds import InjectedFault

    try:
        fault = (
            InjectedFault(kind=kind, node=node, seconds=seconds(lasting), amount=amount) if kind is not None else None
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    click.echo(_request_fault(Path(cluster_session.lab(name).kubeconfig), fault))


def _request_fault(config: Path, fault: InjectedFault | None) -> str:
    """Ask the lab for a fault, or for those there are; returns its words."""
    import asyncio

    import msgspec

    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.errors import KubeError, NotFound

    async def request() -> str:
        kube = Kube(load(config).transport(), Clock(asyncio.get_running_loop()))
        try:
            response = await _at_some_door(kube, fault)
        finally:
            await kube.close()
        return recognized(str(msgspec.json.decode(response.body)["message"]))

    try:
        return run_scaled(request())
    except NotFound as error:
        raise UserError(
            message("no node runs here, and an API server that is bare or Kubernetes' own is not ours to break")
        ) from error
    except KubeError as error:
        raise UserError(getattr(error, "message", str(error))) from error


async def _at_some_door(kube: Kube, fault: InjectedFault | None) -> Response:
    """The lab's own API server answers itself; Kubernetes' asks the lab by way of a kubelet."""
    import msgspec

    from dovetail.kube.errors import NotFound
    from dovetail.kube.resources import NODES
    from dovetail.lab.faults.injection import PATH

    method, body = ("GET", None) if fault is None else ("POST", msgspec.to_builtins(fault, enc_hook=float))
    try:
        return await kube.request(method, PATH, body=body)
    except NotFound:
        nodes = (await kube.list(NODES, limit=1)).items
        if not nodes:
            raise
        return await kube.request(method, NODES.path(None, nodes[0]["metadata"]["name"], "proxy") + PATH, body=body)
