"""`dovetail completion SHELL`: completion of commands, options and, for `explain`, of the objects that the cluster has.

A shell waits for what is printed here at every press of the tab key. So the cluster gets little time, and whatever goes
wrong means no suggestion: nothing is ever printed but suggestions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from dovetail.kube.resources import Resource

SHELLS = ("bash", "fish", "zsh")
VARIABLE = "_DOVETAIL_COMPLETE"
#: How long the cluster may take to list names.
NAMES_TIMEOUT_S = 1.5
MAX_NAMES = 500
HOW = {
    "bash": 'eval "$(dovetail completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(dovetail completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "dovetail completion fish > ~/.config/fish/completions/dovetail.fish",
}
#: Kinds that `explain` takes, with kubectl's short names, and where their objects are listed.
SHORT_NAMES = {
    "po": "pod",
    "no": "node",
    "ec2nc": "ec2nodeclass",
    "deploy": "deployment",
    "sts": "statefulset",
    "ds": "daemonset",
    "ns": "namespace",
}


def resources() -> dict[str, Resource]:
    from dovetail.kube import resources as kinds

    vpas = kinds.Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
    return {
        "pod": kinds.PODS,
        "node": kinds.NODES,
        "nodeclaim": kinds.NODECLAIMS,
        "nodepool": kinds.NODEPOOLS,
        "ec2nodeclass": kinds.EC2NODECLASSES,
        "deployment": kinds.DEPLOYMENTS,
        "statefulset": kinds.STATEFULSETS,
        "daemonset": kinds.DAEMONSETS,
        "job": kinds.JOBS,
        "pdb": kinds.PDBS,
        "hpa": kinds.HPAS,
        "vpa": vpas,
        "namespace": kinds.NAMESPACES,
    }


@click.command(epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion of a shell, to be evaluated by it."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    arguments = {"complete_func": "_dovetail_completion", "complete_var": VARIABLE, "prog_name": "dovetail"}
    click.echo(completion_class.source_template % arguments)


def complete_subject(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A kind, or the names of the objects of a kind: `pod NAME` and `pod/NAME`."""
    typed = ctx.params.get(parameter.name or "") or ()
    if not typed and "/" not in incomplete:
        return [CompletionItem(kind) for kind in sorted(resources()) if kind.startswith(incomplete)]
    kind, slash, start = incomplete.partition("/") if not typed else (str(typed[0]), "", incomplete)
    resource = resources().get(SHORT_NAMES.get(kind.lower(), kind.lower().removesuffix("s")))
    if resource is None or len(typed) > 1:
        return []
    names = _names(resource, ctx)
    return [CompletionItem(f"{kind}/{name}" if slash else name) for name in names if name.startswith(start)]


def _names(resource: Resource, ctx: click.Context) -> list[str]:
    """What the cluster has, or nothing: a shell in the middle of a word is no place for an error."""
    import asyncio
    import logging

    # Before the time begins to count: on a busy computer imports take longer than a cluster.
    from dovetail.cli import cluster_session  # noqa: F401
    from dovetail.kube import client, config  # noqa: F401

    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(asyncio.wait_for(_listed(resource, ctx), NAMES_TIMEOUT_S))
    except (Exception, SystemExit):  # no cluster, no rights, no time, a kubeconfig that cannot be read
        return []


async def _listed(resource: Resource, ctx: click.Context) -> list[str]:
    import asyncio

    from dovetail.cli import cluster_session
    from dovetail.cli.terminal import quiet_logs
    from dovetail.clock import Clock
    from dovetail.kube.client import Kube
    from dovetail.kube.config import load

    quiet_logs()
    path = cluster_session.kubeconfig(ctx.params.get("kubeconfig"), ctx.params.get("lab"))
    connection = load(path, ctx.params.get("context"))
    namespace = ctx.params.get("namespace") or connection.namespace
    kube = Kube(connection.transport(), Clock(asyncio.get_running_loop()))
    try:
        listing = await kube.list(
            resource,
            namespace if resource.namespaced else None,
            trim=lambda obj: {"metadata": {"name": obj["metadata"]["name"]}},
        )
    finally:
        await kube.close()
    return sorted(item["metadata"]["name"] for item in listing.items)[:MAX_NAMES]
