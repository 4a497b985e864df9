"""`dovetail kubectl …`: the kubectl that is installed, or the one from the wheel, pointed at the lab."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from dovetail.errors import UserError
from dovetail.language import message


def binary() -> str | None:
    """kubectl from the wheel beside this Python, else the one in PATH."""
    beside = Path(sys.executable).parent / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl")


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(arguments: tuple[str, ...]) -> None:
    """Run kubectl against the lab; `dovetail kubectl --name LAB …` where several run."""
    from dovetail.cli import cluster_session
    from dovetail.runfile import running

    name, typed = lab_of(as_typed(sys.argv, arguments))
    program = binary()
    if program is None:
        raise UserError(message("kubectl is not installed; pip install 'dovetail[lab]' brings one"))
    if name is not None or (running() and "KUBECONFIG" not in os.environ):
        os.environ["KUBECONFIG"] = cluster_session.lab(name).kubeconfig
    elif not running() and not os.environ.get("KUBECONFIG") and not (Path.home() / ".kube" / "config").exists():
        click.echo(message("note: no lab runs; dovetail up --detach starts one"), err=True)
    os.execv(program, [program, *typed])


def lab_of(typed: list[str]) -> tuple[str | None, list[str]]:
    """The lab's name, which comes first (commands of kubectl's have a --name too), and what is kubectl's."""
    match typed:
        case ["--name", name, *rest]:
            return name, rest
        case [first, *rest] if first.startswith("--name="):
            return first.removeprefix("--name="), rest
    return None, typed


def as_typed(line: list[str], parsed: tuple[str, ...]) -> list[str]:
    """The arguments as they were typed: click takes away a `--` that kubectl needs."""
    return line[line.index("kubectl") + 1 :] if "kubectl" in line else list(parsed)
