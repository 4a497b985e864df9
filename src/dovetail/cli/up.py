"""`dovetail up`: the lab."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--bare", is_flag=True, help="The API server alone, without machines or controllers.")
@click.option("--port", default=6443, show_default=True, help="Port on the loopback; 0 picks a free one.")
@click.option("--kubeconfig", "config", type=click.Path(path_type=Path), default=Path("kubeconfig.yaml"), show_default=True)
@click.option("--token", default=None, help="The token of the administrator; made up if absent.")
def up(bare: bool, port: int, config: Path, token: str | None) -> None:
    """Start the lab: a cluster in one process."""
    from dovetail.lab import bare as alone

    alone.run(port, config, token, click.echo)
