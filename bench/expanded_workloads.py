"""Workloads as their controllers would unroll them: plain objects for a scheduler that knows pods and claims alone."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

Object = dict[str, Any]

_COUNTS = {"Deployment": "replicas", "StatefulSet": "replicas", "Job": "completions"}


def unrolled(objects: Iterable[Object]) -> list[Object]:
    """The objects, with the pods of workloads in their place, numbered from 0."""
    return [made for each in objects for made in (_made(each) if each["kind"] in _COUNTS else [each])]


def _made(workload: Object) -> Iterator[Object]:
    meta, spec = workload["metadata"], workload["spec"]
    for at in range(spec[_COUNTS[workload["kind"]]]):
        pod = copy.deepcopy(spec["template"])
        name = f"{meta['name']}-{at}"
        owner = {
            "apiVersion": workload["apiVersion"],
            "kind": workload["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        pod |= {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] |= {"name": name, "namespace": meta["namespace"], "uid": name, "ownerReferences": [owner]}
        for template in spec.get("volumeClaimTemplates", ()):
            volume = template["metadata"]["name"]
            use = {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}}
            pod["spec"].setdefault("volumes", []).append(use)
            claim = {"name": f"{volume}-{name}", "namespace": meta["namespace"]}
            yield {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": claim,
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            }
        yield pod
