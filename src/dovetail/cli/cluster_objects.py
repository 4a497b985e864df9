"""Reading a running cluster for `dovetail plan`: the same objects, from the API instead of files."""

from __future__ import annotations

from dovetail.cli.cluster_session import Cluster, NotServed, ask
from dovetail.kube import resources as kinds
from dovetail.kube.errors import NotFound
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

    async def question(cluster: Cluster) -> None:
        for resource in _READ:
            try:
                listing = await cluster.kube.list(resource)
            except NotFound as problem:
                if resource in _OPTIONAL:
                    continue
                raise NotServed(resource.name) from problem
            version = f"{resource.group}/{resource.version}" if resource.group else resource.version
            for each in listing.items:
                objects.add({"apiVersion": version, "kind": resource.kind, **each})

    ask(kubeconfig, context, question)
