"""A study as an Indexed Job: each pod runs one part of it and keeps its runs in a volume; Kubernetes retries.

The volume is a folder of runs like any other, so collecting a study is running the same comparison with its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from dovetail.lab.scenario.schema import ScenarioError
from dovetail.language import message
from dovetail.studies.sources import Source
from dovetail.studies.workloads.built_in import BUILT_IN

Json = dict[str, Any]

NAME = "dovetail-study"
RESULTS, WORKLOAD = "/results", "/workload"
#: How often a part that failed, or whose node was lost, is tried again.
RETRIES_PER_PART = 3
#: A finished Job is deleted after a day; the volume stays.
KEPT_FINISHED_S = 86400
STORAGE = "1Gi"
REQUESTS = {"cpu": "1", "memory": "1Gi"}


def manifests(source: Source, options: Sequence[str], parts: int, image: str) -> list[Json]:
    """The volume, the Job, and for a scenario file the ConfigMap that holds it. `options` are those of the command."""
    name, found, volumes, mounts = source.name, list[Json](), list[Json](), list[Json]()
    if source.name not in BUILT_IN:
        path = Path(source.name)
        found.append(_config_map(source, path))
        name = f"{WORKLOAD}/{path.name}"
        volumes.append({"name": "workload", "configMap": {"name": f"{NAME}-workload"}})
        mounts.append({"name": "workload", "mountPath": WORKLOAD})
    volumes.append({"name": "results", "persistentVolumeClaim": {"claimName": f"{NAME}-results"}})
    mounts.append({"name": "results", "mountPath": RESULTS})
    container = {
        "name": "study",
        "image": image,
        "args": [
            *("compare", name, *options),
            *("--jobs", "1", "--cache", RESULTS, "--part", f"$(JOB_COMPLETION_INDEX)/{parts}"),
        ],
        "resources": {"requests": dict(REQUESTS), "limits": {"memory": REQUESTS["memory"]}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": {
            "completionMode": "Indexed",
            "completions": parts,
            "parallelism": parts,
            "backoffLimitPerIndex": RETRIES_PER_PART,
            "maxFailedIndexes": parts,
            "ttlSecondsAfterFinished": KEPT_FINISHED_S,
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": NAME}}, "spec": pod},
        },
    }
    return [_claim(), *found, job]


def _claim() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{NAME}-results"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": STORAGE}}},
    }


def _config_map(source: Source, path: Path) -> Json:
    """The scenario with its manifests inside it."""
    workload = source.workload(1)
    named = [number for number, step in enumerate(workload.scenario.steps) if isinstance(step.apply, str)]
    if named:
        raise ScenarioError(
            message(
                "{path}: steps[{named}].apply: names a file, which the Job's pods do not have; write the object there",
                path=path,
                named=named[0],
            )
        )
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["manifests"] = list(workload.manifests)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{NAME}-workload"},
        "data": {path.name: yaml.safe_dump(document, sort_keys=False, allow_unicode=True)},
    }
