"""`dovetail up`: the lab."""

from __future__ import annotations

from pathlib import Path

import click

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option("--bare", is_flag=True, help="The API server alone, without machines or controllers.")
@click.option("--port", default=6443, show_default=True, help="Port on the loopback; 0 picks a free one.")
@click.option("--kubeconfig", "config", type=_FILE, default=Path("kubeconfig.yaml"), show_default=True)
@click.option("--token", default=None, help="The token of the administrator; made up if absent.")
@click.option("--data", type=_FOLDER, default=None, help="Keep the cluster in this folder across restarts.")
def up(bare: bool, port: int, config: Path, token: str | None, data: Path | None) -> None:
    """Start the lab: a cluster in one process."""
    from dovetail.lab import bare as alone

    try:
        alone.run(port, config, token, data, click.echo)
    except alone.StartError as error:
        raise click.ClickException(str(error)) from error
