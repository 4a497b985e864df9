"""Reading a running cluster for `dovetail plan`: the same objects, from the API instead of files."""

from __future__ import annotations

import asyncio

from dovetail.cli.plan_input import InputError, Objects
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


def read(objects: Objects, kubeconfig: str | None, context: str | None) -> None:
    """Add everything that planning looks at."""
    try:
        run_scaled(_read(objects, kubeconfig, context))
    except (ConfigError, KubeError) as problem:
        raise InputError(str(problem)) from problem


async def _read(objects: Objects, kubeconfig: str | None, context: str | None) -> None:
    kube = Kube(load(kubeconfig, context).transport(), Clock(asyncio.get_running_loop()))
    try:
        for resource in _READ:
            try:
                listing = await kube.list(resource)
            except NotFound:
                continue
            version = f"{resource.group}/{resource.version}" if resource.group else resource.version
            for each in listing.items:
                objects.add({"apiVersion": version, "kind": resource.kind, **each})
    finally:
        await kube.close()
