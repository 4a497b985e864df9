"""`dovetail fault KIND`: break something in a running lab, for a while."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("kind")
@click.option("--node", default="", help="The node it strikes: a name, or a number; the first by default.")
@click.option("--for", "seconds", default=60.0, show_default=True, help="Seconds of the lab's time; 0: for good.")
@click.option("--amount", default=0.0, help="Seconds of delay or skew; the share of refused requests.")
def fault(kind: str, node: str, seconds: float, amount: float) -> None:
    """Break something in a running lab.

    KIND is kubelet-silent, machine-gone, clock-skew, api-slow, api-down, api-throttled, conflict-storm, watch-cut,
    watch-stale, watch-drop, watch-twice or watch-gulps.
    """
    from dovetail.lab.residence import find

    running = find()
    if running is None:
        raise click.ClickException("no lab runs; dovetail up --detach starts one")
    click.echo(_strike(Path(running.kubeconfig), {"kind": kind, "node": node, "for": seconds, "amount": amount}))


def _strike(config: Path, body: dict[str, object]) -> str:
    import asyncio

    import msgspec

    from dovetail.clock import Clock, run_scaled
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load
    from dovetail.kube.errors import KubeError
    from dovetail.lab.faults import PATH

    async def knock() -> str:
        kube = Kube(load(config).transport(), Clock(asyncio.get_running_loop()))
        try:
            response = await kube.request("POST", PATH, body=body)
        finally:
            await kube.close()
        return str(msgspec.json.decode(response.body)["message"])

    try:
        return run_scaled(knock())
    except KubeError as error:
        raise click.ClickException(getattr(error, "message", str(error))) from error
