"""Reading a running cluster for `dovetail plan`: the same objects, from the API instead of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.cli.cluster_session import ClusterSession, NotServed, ask
from dovetail.kube import resources as kinds
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.offline.objects import Objects

_READ = (
    kinds.NODES,
    kinds.PODS,
    kinds.NAMESPACES,
    kinds.DAEMONSETS,
    kinds.PERSISTENTVOLUMECLAIMS,
    kinds.PERSISTENTVOLUMES,
    kinds.STORAGECLASSES,
    kinds.CSINODES,
    kinds.PDBS,
    kinds.PRIORITYCLASSES,
    kinds.NODEPOOLS,
    kinds.NODECLAIMS,
    kinds.NODEOVERLAYS,
    kinds.EC2NODECLASSES,
)
#: What a cluster may be without: our own definitions.
_OPTIONAL = frozenset({kinds.NODEPOOLS, kinds.NODECLAIMS, kinds.NODEOVERLAYS, kinds.EC2NODECLASSES})


def read(objects: Objects, kubeconfig: str | None, context: str | None) -> None:
    """Add everything that planning looks at."""

    async def question(cluster: ClusterSession) -> None:
        for manifest in await manifests(cluster):
            objects.add(manifest)

    ask(kubeconfig, context, question)


async def manifests(cluster: ClusterSession, more: Sequence[kinds.Resource] = ()) -> list[dict[str, Any]]:
    """Everything that planning looks at, as the server has it; `more` kinds beside it, as far as they may be read."""
    objects: list[dict[str, Any]] = []
    for resource in (*_READ, *more):
        try:
            listing = await cluster.kube.list(resource)
        except NotFound as problem:
            if resource in _OPTIONAL or resource in more:
                continue
            raise NotServed(resource.name) from problem
        except Forbidden:
            if resource in more:
                continue
            raise
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        objects += [{"apiVersion": version, "kind": resource.kind, **item} for item in listing.items]
    return objects
