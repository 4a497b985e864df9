"""What a job makes of pods that fail: which are lost, which count, and which end the whole job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.lab.controllers.pods import terminating
from dovetail.lab.controllers.views import ContainerStatus, Json, PodFields


class PodFailureDecision(NamedTuple):
    """`message` ends the job; `counts` says whether the failure does; `action` is the rule's, if one matched."""

    message: str | None = None
    counts: bool = True
    action: str | None = None


def waits_for_end(job: Json) -> bool:
    """Whether a pod is replaced only when it has failed, not while it is still on its way out."""
    return "podFailurePolicy" in job["spec"] or job["spec"].get("podReplacementPolicy") == "Failed"


def fails(job: Json, pod: PodFields) -> bool:
    """Whether a pod is lost to the job. One that is deleted may never come to say that it failed."""
    if pod.status.phase == "Failed":
        return True
    return terminating(pod) and pod.status.phase != "Succeeded" and not waits_for_end(job)


def pod_failure_decision(job: Json, pod: PodFields) -> PodFailureDecision:
    """The first rule that a failed pod matches."""
    for index, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules", ())):
        cause = _cause(rule, pod)
        if cause is not None:
            action = rule["action"]
            text = f"{cause} matching {action} rule at index {index}" if action == "FailJob" else None
            return PodFailureDecision(text, action != "Ignore", action)
    return PodFailureDecision()


def _cause(rule: Json, pod: PodFields) -> str | None:
    """Why the rule is about this pod, in words."""
    codes = rule.get("onExitCodes")
    if codes is not None:
        exited = _exited(codes, pod.status.container_statuses) or _exited(codes, pod.status.init_container_statuses)
        return exited and f"Container {exited[0]} for pod {pod.metadata.key} failed with exit code {exited[1]}"
    for pattern in rule.get("onPodConditions", ()):
        condition = pod.status.condition(pattern["type"])
        if condition is not None and condition.status == pattern.get("status", "True"):
            return f"Pod {pod.metadata.key} has condition {pattern['type']}"
    return None


def _exited(codes: Json, statuses: Iterable[ContainerStatus]) -> tuple[str, int] | None:
    """The first container that ended with a code the rule is about."""
    for status in statuses:
        ended = status.state.terminated
        if ended is None or not ended.exit_code or codes.get("containerName", status.name) != status.name:
            continue
        if (ended.exit_code in codes["values"]) == (codes["operator"] == "In"):
            return status.name, ended.exit_code
    return None


def failed_by_rule(job: Json, pods: Iterable[PodFields]) -> str | None:
    """The message of the first failure that ends the whole job."""
    messages = (pod_failure_decision(job, pod).message for pod in pods if fails(job, pod))
    return next((message for message in messages if message), None)
