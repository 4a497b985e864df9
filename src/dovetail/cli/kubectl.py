"""`dovetail kubectl …`: the kubectl that is installed, or the one from the wheel, pointed at the lab."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from dovetail.cli.problem import Problem


def binary() -> str | None:
    """kubectl from the wheel beside this Python, else the one in PATH."""
    beside = Path(sys.executable).parent / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl")


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(arguments: tuple[str, ...]) -> None:
    """Run kubectl against the lab."""
    from dovetail.lab.residence import find

    program = binary()
    if program is None:
        raise Problem("kubectl is not installed; pip install 'dovetail[lab]' brings one")
    running = find()
    if running is not None and "KUBECONFIG" not in os.environ:
        os.environ["KUBECONFIG"] = running.kubeconfig
    elif running is None and not os.environ.get("KUBECONFIG") and not (Path.home() / ".kube" / "config").exists():
        click.echo("note: no lab runs; dovetail up --detach starts one", err=True)
    os.execv(program, [program, *as_typed(sys.argv, arguments)])


def as_typed(line: list[str], parsed: tuple[str, ...]) -> list[str]:
    """The arguments as they were typed: click takes away a `--` that kubectl needs."""
    return line[line.index("kubectl") + 1 :] if "kubectl" in line else list(parsed)
