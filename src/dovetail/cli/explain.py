"""`dovetail explain pod/NAME`, `node/NAME`, `nodepool/NAME`: why it waits, why it stays."""

from __future__ import annotations

import click

from dovetail.errors import Problem

_NAMES = {
    "pod": ("pod", "pods", "po"),
    "node": ("node", "nodes", "no"),
    "nodeclaim": ("nodeclaim", "nodeclaims", "machine", "machines"),
    "nodepool": ("nodepool", "nodepools", "provisioner", "provisioners"),
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names}


@click.command()
@click.argument("subject")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of a pod.")
@click.option("-v", "verbose", count=True, help="-v per pool and blocker, -vv per step and decision.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--history-namespace", default=None, help="Namespace of the history.  [default: that of the controller's lease]"
)
@click.option("--name", "lab", default=None, metavar="LAB", help="Ask the lab of this name.")
@click.option("--kubeconfig", default=None, help="Kubeconfig file; default as kubectl's.")
@click.option("--context", default=None, help="Context of the kubeconfig.")
def explain(
    subject: str,
    namespace: str,
    verbose: int,
    form: str,
    history_namespace: str | None,
    lab: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say why a pod waits or a node stays: pod/NAME, node/NAME, nodeclaim/NAME, nodepool/NAME.

    Exit status: 0 an answer, 2 no answer (the cluster has no such object, or cannot be asked).
    """
    import msgspec

    from dovetail.cli import cluster_session
    from dovetail.cli.cluster_session import Cluster, ask
    from dovetail.controllers.explain import Answer, Unknown, claim, node, nodepool, pod
    from dovetail.controllers.history.decisions import Decision

    kind, slash, name = subject.partition("/")
    if not slash or kind.lower() not in KINDS or not name:
        raise click.UsageError(f"{subject!r}: ask for pod/NAME, node/NAME, nodeclaim/NAME or nodepool/NAME")

    async def question(cluster: Cluster) -> Answer:
        await cluster.read()
        found = answer_of(cluster, await cluster.decisions(history_namespace))
        no_autoscaler = await cluster.no_autoscaler()
        return msgspec.structs.replace(found, line=f"{found.line}; {no_autoscaler}") if no_autoscaler else found

    def answer_of(cluster: Cluster, decisions: list[Decision]) -> Answer:
        match KINDS[kind.lower()]:
            case "pod":
                key = name if "/" in name else f"{namespace}/{name}"
                return pod(cluster.cluster_state, decisions, key, cluster.now)
            case "node":
                return node(cluster.cluster_state, decisions, name, cluster.now)
            case "nodeclaim":
                return claim(cluster.cluster_state, decisions, name, cluster.now)
            case _:
                return nodepool(cluster.cluster_state, decisions, name, cluster.now)

    try:
        answer = ask(cluster_session.kubeconfig(kubeconfig, lab), context, question)
    except Unknown as problem:
        raise Problem(str(problem.args[0])) from problem
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        return
    click.echo(f"{answer.subject} {answer.line}")
    for line in (*(answer.details if verbose else ()), *(answer.deep if verbose > 1 else ())):
        click.echo(f"  {line}")
