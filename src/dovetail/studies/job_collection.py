"""Collects a study's runs from the logs of its Job's pods, as they finish.

The Job is one of `indexed_job`. A command that is started again finds the Job of the one before it, and collects the
rest. A run whose log is gone is missing afterwards: the command makes it itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.errors import UserError
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.resources import CONFIGMAPS, JOBS, PODS
from dovetail.language import message
from dovetail.studies.indexed_job import Json
from dovetail.studies.run import Run

POLL_INTERVAL_S = 2.0
#: Why a container waits for its image. A registry may fail for a while.
IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
IMAGE_PULL_TIMEOUT_S = 120.0
#: Lines of a failed pod's log that the error quotes.
QUOTED_LINES = 5
_RESOURCES = {"Job": JOBS, "ConfigMap": CONFIGMAPS}


class LoggedRun(msgspec.Struct, frozen=True, rename="camel"):
    """A line of a pod's log."""

    study_run_key: str
    version: str
    run: Run


Keep = Callable[[str, Run], None]


def log_line(key: str, run: Run) -> str:
    """A run as its pod writes it."""
    return msgspec.json.encode(LoggedRun(key, __version__, run)).decode()


async def collect(kube: Kube, objects: Sequence[Json], keys: Collection[str], keep: Keep) -> None:
    """Apply the Job unless it is there, keep every run as soon as its pod is done, and delete the Job at its end."""
    for body in objects:
        try:
            await kube.create(_RESOURCES[body["kind"]], body, body["metadata"]["namespace"])
        except AlreadyExists:
            continue
    job = objects[-1]
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    collected: set[str] = set()
    while True:
        # The Job before its pods: what is Complete here has all its pods below.
        job = await kube.get(JOBS, name, namespace)
        pods = (await kube.list(PODS, namespace, labels=f"batch.kubernetes.io/job-name={name}")).items
        for pod in pods:
            await _collect_pod(kube, pod, keys, keep, collected)
        condition = _finished(job)
        if condition == "Complete":
            break
        if condition == "Failed":
            raise UserError(await _failure(kube, job, pods))
        _check_images(pods, kube.clock.now())
        await asyncio.sleep(POLL_INTERVAL_S)
    for body in objects:
        await _delete(kube, body)


async def _collect_pod(kube: Kube, pod: Json, keys: Collection[str], keep: Keep, collected: set[str]) -> None:
    metadata = pod["metadata"]
    if pod.get("status", {}).get("phase") != "Succeeded" or metadata["uid"] in collected:
        return
    collected.add(metadata["uid"])
    try:
        text = await kube.log(metadata["name"], metadata["namespace"])
    except KubeError:
        return  # its node is gone: the run is missing, and is made by the command
    for line in text.splitlines():
        logged = _parsed(line)
        if logged is None:
            continue
        if logged.study_run_key not in keys:
            raise UserError(
                message(
                    "the image has Dovetail {image_version} with other code than this command ({version}); "
                    "runs of different code are not compared: name the image of this version",
                    image_version=logged.version,
                    version=__version__,
                )
            )
        keep(logged.study_run_key, logged.run)


def _parsed(line: str) -> LoggedRun | None:
    try:
        return msgspec.json.decode(line, type=LoggedRun)
    except msgspec.MsgspecError:
        return None


def _finished(job: Mapping[str, Any]) -> str:
    """`Complete`, `Failed`, or nothing while it runs."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return str(condition["type"])
    return ""


def _check_images(pods: Sequence[Json], now: datetime) -> None:
    """An image that does not come is an error: Kubernetes would try for ever."""
    for pod in pods:
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        if (now - created).total_seconds() < IMAGE_PULL_TIMEOUT_S:
            continue
        for status in pod.get("status", {}).get("containerStatuses") or ():
            waiting = status.get("state", {}).get("waiting") or {}
            if waiting.get("reason") in IMAGE_REASONS:
                raise UserError(
                    message(
                        "pod {pod}: {reason}: {why}; delete the Job and name another --image",
                        pod=pod["metadata"]["name"],
                        reason=waiting["reason"],
                        why=waiting.get("message", ""),
                    )
                )


async def _failure(kube: Kube, job: Mapping[str, Any], pods: Sequence[Json]) -> str:
    """Which parts failed, and what the last of their pods wrote."""
    quoted, failed = "", [pod for pod in pods if pod.get("status", {}).get("phase") == "Failed"]
    if failed:
        metadata = max(failed, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))["metadata"]
        try:
            text = await kube.log(metadata["name"], metadata["namespace"], tail=QUOTED_LINES)
        except KubeError:
            text = ""
        quoted = f"\n{metadata['name']}: {text.strip()}" if text.strip() else ""
    return message(
        "Job {name}: parts {indexes} failed after every retry; finished runs are kept: delete the Job, and "
        "the same command tries the others again{quoted}",
        name=job["metadata"]["name"],
        indexes=job.get("status", {}).get("failedIndexes") or "?",
        quoted=quoted,
    )


async def _delete(kube: Kube, body: Json) -> None:
    try:
        metadata = body["metadata"]
        await kube.delete(_RESOURCES[body["kind"]], metadata["name"], metadata["namespace"], propagation="Background")
    except NotFound:
        return
