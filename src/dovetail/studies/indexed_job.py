"""A study as an Indexed Job: each pod makes one run and writes it into its log; Kubernetes retries.

`job_collection` reads the logs. A volume or an object store keeps the runs as well, for other studies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dovetail.lab.scenario.schema import ScenarioError
from dovetail.language import message
from dovetail.model import yaml_document
from dovetail.studies.sources import WorkloadSource
from dovetail.studies.study import OBJECT_STORE
from dovetail.studies.workloads.built_in import BUILT_IN

Json = dict[str, Any]

NAME = "dovetail-study"
RESULTS, WORKLOAD = "/results", "/workload"
#: How often a part that failed, or whose node was lost, is tried again.
RETRIES_PER_PART = 3
#: A finished Job that no command collects is deleted after a day; what it kept elsewhere stays.
KEPT_FINISHED_S = 86400
REQUESTS = {"cpu": "1", "memory": "1Gi"}


class JobSettings(msgspec.Struct, frozen=True):
    """Where the Job's pods run, and where they keep their runs besides their logs."""

    image: str
    namespace: str = "default"
    service_account: str = ""
    #: A PersistentVolumeClaim, or `s3://BUCKET/PREFIX`; nothing if left out.
    results: str = ""


def name_of(keys: Sequence[str]) -> str:
    """The Job's name: that of the same study is the same, so that a command finds the Job of one before it."""
    return f"{NAME}-{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:10]}"


def manifests(source: WorkloadSource, options: Sequence[str], keys: Sequence[str], settings: JobSettings) -> list[Json]:
    """The Job with a pod for each run, and for a scenario file the ConfigMap that holds it.

    `options` are those of the command that decide which runs there are.
    """
    job_name, workload, objects = name_of(keys), source.name, list[Json]()
    volumes: list[Json] = [{"name": "results", "emptyDir": {}}]
    mounts: list[Json] = [{"name": "results", "mountPath": RESULTS}]
    if source.name not in BUILT_IN:
        path = Path(source.name)
        objects.append(_config_map(source, path, job_name, settings.namespace))
        workload = f"{WORKLOAD}/{path.name}"
        volumes.append({"name": "workload", "configMap": {"name": job_name}})
        mounts.append({"name": "workload", "mountPath": WORKLOAD})
    is_object_store = settings.results.startswith(OBJECT_STORE)
    if settings.results and not is_object_store:
        volumes[0] = {"name": "results", "persistentVolumeClaim": {"claimName": settings.results}}
    arguments = [
        *("compare", workload, *options),
        *("--jobs", "1", "--cache", settings.results if is_object_store else RESULTS),
        *("--part", f"$(JOB_COMPLETION_INDEX)/{len(keys)}", "--output", "json"),
    ]
    pod = _pod_spec(settings, arguments, volumes, mounts)
    return [*objects, _job(job_name, settings.namespace, len(keys), pod)]


def _pod_spec(settings: JobSettings, arguments: list[str], volumes: list[Json], mounts: list[Json]) -> Json:
    container = {
        "name": "study",
        "image": settings.image,
        "args": arguments,
        "resources": {"requests": dict(REQUESTS), "limits": {"memory": REQUESTS["memory"]}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    account = {"serviceAccountName": settings.service_account} if settings.service_account else {}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": bool(account),
        **account,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }


def _job(name: str, namespace: str, parts: int, pod: Json) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}},
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


def _config_map(source: WorkloadSource, path: Path, name: str, namespace: str) -> Json:
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
    document = yaml_document.load(path.read_text(encoding="utf-8"))
    document["manifests"] = list(workload.manifests)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {path.name: yaml.safe_dump(document, sort_keys=False, allow_unicode=True)},
    }
