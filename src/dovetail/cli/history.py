"""`dovetail history`: what was decided, newest last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.errors import UserError
from dovetail.language import current, message
from dovetail.language.system_errors import system_error

if TYPE_CHECKING:
    from datetime import timedelta

    from dovetail.controllers.history.decisions import Decision

KINDS = (
    "provision",
    "refuse",
    "disrupt",
    "undo",
    "end",
    "unhealthy",
    "keep",
    "safe-mode",
    "drift-stop",
    "shadow",
    "scale-up",
    "scale-down",
)


@click.command()
@click.option("--about", default=None, metavar="NAME", help="Only decisions that name this pod, node, claim or pool.")
@click.option("--kind", type=click.Choice(KINDS), default=None, help="Only this kind.")
@click.option("--reason", default=None, help="Only this reason: Empty, Drifted, Underutilized, NOT_CHEAPER and so on.")
@click.option("--since", default="168h", show_default=True, help="How far back, as a duration.")
@click.option(
    "-n", "--last", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many, the newest."
)
@click.option("--id", "identity", default=None, metavar="ID", help="One decision, whole.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Read the decisions of a file: of dovetail run --history, or of a dry run.",
)
@click.option("--namespace", default=None, help="Namespace of the history.  [default: that of the controller's lease]")
@click.option("--name", "lab", default=None, metavar="LAB", help="Ask the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def history(
    about: str | None,
    kind: str | None,
    reason: str | None,
    since: str,
    last: int,
    identity: str | None,
    form: str,
    file: Path | None,
    namespace: str | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show past decisions."""
    import msgspec

    from dovetail.cli import cluster_session
    from dovetail.cli.cluster_session import ClusterSession, ask
    from dovetail.clock import wall
    from dovetail.controllers import explain
    from dovetail.controllers.history.decisions import concerns

    window = _window(since)

    async def read_decisions(cluster: ClusterSession) -> list[Decision]:
        return explain.since(await cluster.decisions(namespace), cluster.now, window)

    if file is not None:
        cluster_session.refuse_with_recording(
            {"--namespace": namespace, "--name": lab, "--kubeconfig": kubeconfig, "--context": context}, "--file"
        )
        decisions = explain.since(_of_file(file), wall(), window)
    else:
        decisions = ask(cluster_session.kubeconfig(kubeconfig, lab), context, read_decisions)
    decisions = [
        decision
        for decision in decisions
        if (about is None or concerns(decision, about))
        and kind in (None, decision.kind)
        and reason in (None, decision.reason)
    ]
    if identity is not None:
        decisions = [decision for decision in decisions if decision.id == identity]
        if not decisions:
            raise UserError(
                message(
                    "no decision {identity} in the last {since}; dovetail history lists those there are",
                    identity=identity,
                    since=since,
                )
            )
        form = "json"
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(decisions[-last:])).decode())
        return
    narrowed = any(option is not None for option in (about, kind, reason))
    _print(decisions[-last:], since, narrowed=narrowed)


def _window(since: str) -> timedelta:
    """The time that `--since` names."""
    from dovetail.model import duration

    try:
        return duration.parse(since)
    except ValueError as problem:
        raise click.UsageError(
            message("--since {since!r}: {problem}; try 30m, 24h or 168h", since=since, problem=problem)
        ) from problem


def _print(decisions: Sequence[Decision], since: str, *, narrowed: bool) -> None:
    """A line for each decision; `narrowed` where options left some out."""
    if not decisions:
        click.echo(
            message("no decisions of that kind in the last {since}", since=since)
            if narrowed
            else message("no decisions in the last {since}", since=since),
            err=True,
        )
    for decision in decisions:
        subject = f"{decision.subject}: " if decision.subject else ""
        click.echo(
            f"{decision.time}  {decision.id}  {decision.kind:9}  {_money(decision)}{subject}{_summary(decision)}"
        )


def _summary(decision: Decision) -> str:
    """What was decided, in the reader's language; else its reason is, which is known by its code."""
    from dovetail.language.recognition import recognized
    from dovetail.model.reasons import REASONS

    summary = recognized(decision.summary)
    explained = REASONS.get(decision.reason)
    if explained is None or current() == "en" or decision.reason in decision.summary or summary != decision.summary:
        return summary
    return f"{summary} [{decision.reason}: {explained.in_words()}]"


def _of_file(path: Path) -> list[Decision]:
    from dovetail.controllers.history.store import lines

    try:
        return lines(path.read_bytes())
    except OSError as problem:
        raise UserError(f"--file {path}: {system_error(problem)}") from problem


def _money(decision: Decision) -> str:
    """What it cost before and costs from now on, where it changes anything; unknown is not nothing."""
    before, cost = decision.before, decision.cost
    if cost is None:
        return (
            message("${before:.4f} -> unknown  ", before=before)
            if decision.kind == "disrupt" and before is not None
            else ""
        )
    return f"${cost:.4f}/h  " if before is None else f"${before:.4f} -> ${cost:.4f}/h  "
