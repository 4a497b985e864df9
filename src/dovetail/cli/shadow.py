"""`dovetail shadow report`: what a dry run would have launched, disrupted and saved."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error


@click.group()
def shadow() -> None:
    """Look at what `dovetail run --dry-run` recorded."""


@shadow.command()
@click.option(
    "--history",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File of the dry run's decisions; by default the one that a dry run writes.",
)
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def report(file: Path | None, form: str) -> None:
    """Sum up a dry run: launches against the cluster's autoscaler, disruption, dollars, evictions, differences."""
    import msgspec

    from dovetail.controllers.history import store
    from dovetail.controllers.shadow import report as shadow_report

    path = file or store.shadow_file()
    try:
        decisions = store.lines(path.read_bytes())
    except OSError as problem:
        remedy = message("--history names the file that dovetail run --dry-run was given")
        raise UserError(f"{path}: {system_error(problem)}; {remedy}") from problem
    made = shadow_report.report(decisions)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(made)).decode())
    else:
        click.echo(shadow_report.text(made))
