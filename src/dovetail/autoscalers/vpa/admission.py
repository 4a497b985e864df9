"""Answers to admission reviews: patches for pods, defaults and refusals for VPAs.

A pod is never refused, whatever goes wrong: then it is let in as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from dovetail.autoscalers.vpa.api import Pod, VerticalPodAutoscaler
from dovetail.autoscalers.vpa.capping import NamespaceLimits
from dovetail.autoscalers.vpa.patches import admission_patches
from dovetail.autoscalers.vpa.proportions import ZERO
from dovetail.autoscalers.vpa.startup_boost import BoostError
from dovetail.autoscalers.vpa.validation import FeatureGates, default_patches, refusal, validate
from dovetail.kube.log import Log
from dovetail.model.quantity import Quantity

log = Log("vpa-admission-controller")

#: A larger review is answered with status 413.
MAX_REVIEW_BYTES = 5 * 2**20


class Matcher(Protocol):
    """What the admission of a pod depends on."""

    async def matching(self, pod: Pod) -> VerticalPodAutoscaler | None:
        """The VPA that controls a pod, if any."""

    def limits(self, namespace: str) -> NamespaceLimits:
        """The LimitRanges of a namespace."""


class AdmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """An AdmissionReview to answer with, and what metrics call it."""

    review: dict[str, Any]
    status: str
    resource: str


async def answer(body: bytes, matcher: Matcher, gates: FeatureGates, max_cpu_boost: Quantity = ZERO) -> AdmissionResult:
    """The answer to a review; one that cannot be read is allowed without changes."""
    try:
        request = msgspec.json.decode(body, type=dict[str, Any])["request"]
        uid, resource = str(request["uid"]), request["resource"]
        kind = (resource.get("group", ""), resource["resource"])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as problem:
        log.error("Unreadable admission review", problem=repr(problem))
        return _reviewed({"uid": "", "allowed": True}, "error", "unknown")
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if kind == ("", "pods"):
        return await _pod(request, response, matcher, gates, max_cpu_boost)
    if kind == ("autoscaling.k8s.io", "verticalpodautoscalers"):
        return _vpa(request, response, gates)
    log.error("not supported resource type", group=kind[0], resource=kind[1])
    return _reviewed(response, "error", "unknown")


async def _pod(
    request: Mapping[str, Any],
    response: dict[str, Any],
    matcher: Matcher,
    gates: FeatureGates,
    max_cpu_boost: Quantity,
) -> AdmissionResult:
    try:
        pod = msgspec.convert(request["object"], Pod, strict=False)
    except (msgspec.ValidationError, KeyError) as problem:
        log.error("Unreadable pod in admission review", problem=repr(problem))
        return _reviewed(response, "skipped", "Pod")
    if not pod.metadata.namespace:
        metadata = msgspec.structs.replace(pod.metadata, namespace=request.get("namespace") or "")
        pod = msgspec.structs.replace(pod, metadata=metadata)
    name = pod.metadata.name or f"{pod.metadata.generate_name}%"
    vpa = await matcher.matching(pod)
    if vpa is None:
        log.debug("No matching VPA found for pod", pod=name)
        return _reviewed(response, "skipped", "Pod")
    log.info("Updating requirements for pod", pod=name, vpa=vpa.metadata.key)
    try:
        patches = admission_patches(
            pod,
            vpa,
            matcher.limits(pod.metadata.namespace),
            startup_boost=gates.cpu_startup_boost,
            max_cpu_boost=max_cpu_boost,
        )
    except BoostError as problem:
        log.error("Pod admitted without changes", pod=name, vpa=vpa.metadata.key, problem=str(problem))
        return _reviewed(response, "skipped", "Pod")
    return _patched(response, patches, "Pod")


def _vpa(request: Mapping[str, Any], response: dict[str, Any], gates: FeatureGates) -> AdmissionResult:
    raw = request.get("object") or {}
    try:
        vpa = msgspec.convert(raw, VerticalPodAutoscaler, strict=False)
        old = VerticalPodAutoscaler()  # a created object has no old one; the schema requires a targetRef
        if request.get("operation") == "UPDATE":
            old = msgspec.convert(request.get("oldObject") or {}, VerticalPodAutoscaler, strict=False)
    except msgspec.ValidationError as problem:
        response["allowed"] = False
        response["status"] = {"status": "Failure", "code": 500, "message": f".: Internal error: {problem}"}
        return _reviewed(response, "skipped", "VerticalPodAutoscaler")
    errors, warnings = validate(vpa, old, gates)
    if warnings:
        response["warnings"] = warnings
    if errors:
        response["allowed"] = False
        response["status"] = refusal(str(request.get("name") or ""), errors)
        return _reviewed(response, "skipped", "VerticalPodAutoscaler")
    return _patched(response, default_patches(raw.get("spec")), "VerticalPodAutoscaler")


def _patched(response: dict[str, Any], patches: list[dict[str, Any]], resource: str) -> AdmissionResult:
    if not patches:
        return _reviewed(response, "skipped", resource)
    log.debug("Sending patches", patches=patches)
    response["patchType"] = "JSONPatch"
    response["patch"] = base64.b64encode(msgspec.json.encode(patches)).decode()
    return _reviewed(response, "applied", resource)


def _reviewed(response: dict[str, Any], status: str, resource: str) -> AdmissionResult:
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
    return AdmissionResult(review=review, status=status, resource=resource)
