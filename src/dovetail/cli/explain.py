"""`dovetail explain KIND/NAME`: why it waits, why it stays, why this one, and what it would take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from dovetail.cli.completion import complete_subject
from dovetail.errors import UserError
from dovetail.language import english, message
from dovetail.language.recognition import recognized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from typing import Never

    from dovetail.cli.cluster_session import ClusterSession
    from dovetail.cli.explain_subjects import ExplainOptions, ExplainSubject
    from dovetail.controllers.explain import Answer

#: Seconds between two looks of --watch.
WATCH_INTERVAL_S = 2.0
#: A line of a decision: its time, id and kind, and what was decided.
_DECISION = re.compile(r"(\S+Z  d-\S+  \S+ +)(.*)", re.DOTALL)
API_VERSION = "dovetail.sh/v1"


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="KIND/NAME", shell_complete=complete_subject)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the object.")
@click.option("-v", "verbose", count=True, help="-v per pool and blocker, -vv per step and decision.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-w", "--watch", is_flag=True, help="Ask again and again; print when the answer changes.")
@click.option("--at", "moment", default=None, metavar="TIME", help="As of then, by the history: 14:05, 30m, RFC 3339.")
@click.option(
    "--why", type=click.Choice(["cheaper", "spot", "zone"]), default=None, help="Why not cheaper, not spot; why here."
)
@click.option(
    "--what-if",
    "what_if",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[NAME=VALUE,...]",
    help="What a pod that asks for cpu=2,memory=4Gi would get; without a value, what it would take.",
)
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH", help="Explain a pod of these manifests.")
@click.option(
    "--history-namespace", default=None, help="Namespace of the history.  [default: that of the controller's lease]"
)
@click.option("--name", "lab", default=None, metavar="LAB", help="Ask the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def explain(
    words: tuple[str, ...],
    namespace: str,
    verbose: int,
    form: str,
    watch: bool,
    moment: str | None,
    why: str | None,
    what_if: str | None,
    paths: tuple[str, ...],
    history_namespace: str | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say why a pod waits, a node stays, a pool does not launch; or what anything costs.

    KIND is pod, node, nodeclaim, nodepool, ec2nodeclass, deployment, statefulset, job, pdb, hpa, vpa, nodegroup or
    namespace, by any of kubectl's names for it.

    Exit status: 0 an answer, 2 no answer (the cluster has no such object, or cannot be asked).
    """
    from dovetail.cli import cluster_session
    from dovetail.cli.cluster_session import ask
    from dovetail.cli.explain_subjects import ExplainOptions, subject_of
    from dovetail.controllers.explain import Unknown
    from dovetail.kube.resources import NODECLAIMS, NODEPOOLS

    subject = subject_of(words, namespace)
    _check_options(subject.kind, why, what_if, moment, bool(paths), watch)
    if paths:
        try:
            _print(_of_files(subject.name, paths, what_if, verbose > 0 or form == "json"), verbose, form)
        except Unknown as problem:
            raise UserError(str(problem.args[0])) from problem
        return

    async def question(cluster: ClusterSession) -> Answer | None:
        cluster.cluster_state.tolerate_absent(NODEPOOLS, NODECLAIMS)
        options = ExplainOptions(why or "", what_if, _moment(moment, cluster.now), verbose > 0 or form == "json")
        if watch:
            await _watch(cluster, lambda: _answer(cluster, subject, options, history_namespace), verbose, form)
        await cluster.read()
        return await _answer(cluster, subject, options, history_namespace)

    try:
        answer = ask(cluster_session.kubeconfig(kubeconfig, lab), context, question)
    except Unknown as problem:
        raise UserError(str(problem.args[0])) from problem
    if answer is not None:
        _print(answer, verbose, form)


async def _watch(cluster: ClusterSession, answer: Callable[[], Awaitable[Answer]], verbose: int, form: str) -> Never:
    """Print the answer whenever it changes, until interrupted."""
    import asyncio

    shown = ""
    async with cluster.following():
        while True:
            cluster.now = cluster.kube.clock.now()
            text = _text(await answer(), verbose, form)
            if text != shown:
                click.echo(f"{cluster.now:%H:%M:%S}  {text}" if form == "text" else text)
                shown = text
            await asyncio.sleep(WATCH_INTERVAL_S)


async def _answer(
    cluster: ClusterSession, subject: ExplainSubject, question: ExplainOptions, history_namespace: str | None
) -> Answer:
    """The answer is data, in English; it is translated where it is printed."""
    from dovetail.cli.explain_subjects import answer

    with english():
        return await answer(cluster, subject, question, history_namespace)


def _check_options(
    kind: str, why: str | None, what_if: str | None, moment: str | None, files: bool, watch: bool
) -> None:
    """Options that do not go together, or not with the kind, are refused."""
    if why is not None and kind not in ("pod", "node", "nodeclaim", "machine"):
        raise click.UsageError(message("--why is about a pod, a node or a nodeclaim, not a {kind}", kind=kind))
    if what_if is not None and kind != "pod":
        raise click.UsageError(message("--what-if is about a pod, not a {kind}", kind=kind))
    if files and (kind != "pod" or why or moment or watch):
        raise click.UsageError(
            message("-f explains a pod of the manifests; --why, --at, --watch and other kinds need a cluster")
        )
    if moment is not None and (why or what_if is not None or watch):
        raise click.UsageError(message("--at is about the past; leave out --why, --what-if and --watch"))


def _moment(text: str | None, now: datetime) -> datetime | None:
    """A time of day, a duration before now, or a whole time."""
    from datetime import UTC, datetime, timedelta

    from dovetail.model import duration

    if text is None:
        return None
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text, form)
        except ValueError:
            continue
        then = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
        return then if then <= now else then - timedelta(days=1)
    try:
        return now - duration.parse(text.removeprefix("-"))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as problem:
        raise click.UsageError(
            message("--at {text!r}: write 14:05, 30m (ago) or 2026-01-31T14:05:00Z", text=text)
        ) from problem
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _of_files(name: str, paths: tuple[str, ...], what_if: str | None, verbose: bool) -> Answer:
    """A pod of manifests: nothing but these is asked."""
    from dovetail.cli import explain_evaluation
    from dovetail.controllers.explain import Unknown
    from dovetail.offline.evaluation import PlanEvaluation, manifests_of
    from dovetail.offline.objects import documents

    evaluation = PlanEvaluation(manifests_of(documents(paths)))
    if evaluation.placement(name) is None:
        alike = evaluation.pods_like(name)
        if not alike:
            there = ", ".join(sorted(evaluation.plan.placements)[:5]) or message("none")
            raise Unknown(
                message("pod/{name} does not wait in these manifests; pods that do: {there}", name=name, there=there)
            )
        name = alike[0]
    with english():
        if what_if is not None:
            return (
                explain_evaluation.what_if(evaluation, name, what_if)
                if what_if
                else explain_evaluation.takes(evaluation, name)
            )
        answer = explain_evaluation.evaluated(evaluation, name)
        return explain_evaluation.with_changes(answer, evaluation, name) if verbose else answer


def _print(answer: Answer, verbose: int, form: str) -> None:
    click.echo(_text(answer, verbose, form))


def _text(answer: Answer, verbose: int, form: str) -> str:
    import msgspec

    if form == "json":
        from dovetail.model.reasons import REASONS

        reason = REASONS.get(answer.code)
        body = {
            "apiVersion": API_VERSION,
            "kind": "Explanation",
            "class": reason.kind if reason is not None else "",
            **msgspec.to_builtins(answer),
        }
        return msgspec.json.format(msgspec.json.encode(body)).decode()
    lines = [*(answer.details if verbose else ()), *(answer.deep if verbose > 1 else ())]
    return "\n".join([f"{answer.subject} {recognized(answer.line)}", *(f"  {_shown(line)}" for line in lines)])


def _shown(line: str) -> str:
    """A line in the reader's language; an event as it is, and what it says behind it."""
    from dovetail.controllers.explain.answer import EVENT_MARK

    if (decision := _DECISION.fullmatch(line)) is not None:
        return decision[1] + recognized(decision[2])
    event, said = line.partition(EVENT_MARK)[1:]
    if not event or (translation := recognized(said)) == said:
        return recognized(line)
    return f"{line} ({translation})"
