"""`dovetail version`."""

import click

from dovetail import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"dovetail {__version__}")
