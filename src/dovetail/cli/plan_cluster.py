"""Reading a running cluster for `dovetail plan`: the same objects, from the API instead of files."""

from __future__ import annotations

import asyncio

from dovetail.cli import nearest
from dovetail.cli.plan_objects import Objects
from dovetail.cli.problem import Problem
from dovetail.clock import Clock, run_scaled
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.config import load
from dovetail.kube.credentials import ConfigError
from dovetail.kube.errors import KubeError, NotFound

_READ = (
    kinds.NODES, kinds.PODS, kinds.NAMESPACES, kinds.DAEMONSETS, kinds.PERSISTENTVOLUMECLAIMS,
    kinds.PERSISTENTVOLUMES, kinds.STORAGECLASSES, kinds.CSINODES, kinds.PDBS, kinds.PRIORITYCLASSES,
    kinds.NODEPOOLS, kinds.NODECLAIMS, kinds.NODEOVERLAYS,
)  # fmt: skip
#: What a cluster may be without: our own definitions.
_OPTIONAL = frozenset({kinds.NODEPOOLS, kinds.NODECLAIMS, kinds.NODEOVERLAYS})


def read(objects: Objects, kubeconfig: str | None, context: str | None) -> None:
    """Add everything that planning looks at."""
    try:
        run_scaled(_read(objects, kubeconfig, context))
    except (ConfigError, KubeError) as problem:
        raise Problem(str(problem)) from problem


async def _read(objects: Objects, kubeconfig: str | None, context: str | None) -> None:
    kube = Kube(load(nearest.kubeconfig(kubeconfig), context).transport(), Clock(asyncio.get_running_loop()))
    try:
        for resource in _READ:
            try:
                listing = await kube.list(resource)
            except NotFound as problem:
                if resource in _OPTIONAL:
                    continue
                told = f"the server does not know {resource.plural}: is it a Kubernetes API server?"
                raise Problem(told) from problem
            version = f"{resource.group}/{resource.version}" if resource.group else resource.version
            for each in listing.items:
                objects.add({"apiVersion": version, "kind": resource.kind, **each})
    finally:
        await kube.close()
