"""`dovetail fault KIND`: break something in a running lab, for a while."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dovetail.lab.faultkinds import Fault


@click.command()
@click.argument("kind", required=False)
@click.option("--node", default="", help="The node: a name, a number, or * for every kubelet; the first by default.")
@click.option("--for", "lasting", default="60s", show_default=True, metavar="DURATION",
              help="How long by the lab's clock, as 90s or 5m; 0: until mended.")  # fmt: skip
@click.option("--amount", default=0.0, help="Seconds of delay or skew, or the share of requests or events.")
def fault(kind: str | None, node: str, lasting: str, amount: float) -> None:
    """Break something in a running lab.

    KIND is kubelet-silent, machine-gone, clock-skew, api-slow, api-down, api-throttled, conflict-storm, watch-cut,
    watch-stale, watch-drop, watch-twice or watch-gulps; with AWS spot-interruption, status-checks, aws-denied,
    aws-throttled or sold-out. Without a KIND: what is broken now. The KIND mend ends all of it.
    """
    from dovetail.lab.faultkinds import Fault
    from dovetail.lab.residence import find
    from dovetail.lab.seconds import seconds

    try:
        asked = Fault(kind=kind, node=node, seconds=seconds(lasting), amount=amount) if kind is not None else None
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    running = find()
    if running is None:
        raise click.ClickException("no lab runs; dovetail up --detach starts one")
    click.echo(_knock(Path(running.kubeconfig), asked))


def _knock(config: Path, asked: Fault | None) -> str:
    """Ask the lab for a fault, or for those there are; returns its words."""
    import asyncio

    import msgspec

    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.errors import KubeError, NotFound
    from dovetail.lab.faults import PATH

    async def knock() -> str:
        kube = Kube(load(config).transport(), Clock(asyncio.get_running_loop()))
        try:
            if asked is None:
                response = await kube.request("GET", PATH)
            else:
                response = await kube.request("POST", PATH, body=msgspec.to_builtins(asked, enc_hook=float))
        finally:
            await kube.close()
        return str(msgspec.json.decode(response.body)["message"])

    try:
        return run_scaled(knock())
    except NotFound as error:
        raise click.ClickException(
            "this lab knows no faults; start one without --bare and --control-plane kubernetes"
        ) from error
    except KubeError as error:
        raise click.ClickException(getattr(error, "message", str(error))) from error
