"""What may change in a pod that exists, through each of its subresources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.gocompat.internal_types import difference, internal
from dovetail.lab.apiserver.kinds.base import immutable
from dovetail.lab.apiserver.kinds.pod.qos import qos_class
from dovetail.model import formats
from dovetail.model.validation import scheduling
from dovetail.model.validation.addresses import valid_ip
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required
from dovetail.model.validation.selectors import label_name

Pod = Mapping[str, Any]
_UPDATABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def update(pod: Pod, old: Pod) -> list[FieldError]:
    """A write to the pod itself, besides what is checked of any pod."""
    spec, before = pod["spec"], old["spec"]
    errors: list[FieldError] = []
    for group in ("containers", "initContainers"):
        complaints, stop = _containers((spec.get(group) or ()), (before.get(group) or ()), f"spec.{group}")
        errors += complaints
        if stop:
            return errors
    complaints, stop = _deadline(spec, before)
    errors += complaints
    if stop:
        return errors
    errors += _tolerations(spec.get("tolerations", ()), before.get("tolerations", ()))
    errors += _gates(spec.get("schedulingGates", ()), before.get("schedulingGates", ()))
    if spec == before:
        return errors
    return errors + _other_fields(spec, before)


def _containers(new: Sequence[Any], old: Sequence[Any], path: str) -> tuple[list[FieldError], bool]:
    new, old = new or [], old or []
    if len(new) != len(old):
        return [forbidden(path, "pod updates may not add or remove containers")], True
    errors = []
    for index, container in enumerate(new):
        image = container.get("image", "")
        if not image:
            errors.append(required(f"{path}[{index}].image"))
        if image != image.strip():
            text = "must not have leading or trailing whitespace"
            errors.append(invalid(f"{path}[{index}].image", image, text))
    return errors, False


def _deadline(spec: Pod, before: Pod) -> tuple[list[FieldError], bool]:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is None:
            return [], False
        return [invalid(path, None, "must not update from a positive integer to nil value")], False
    if not 0 <= new < 2**31:
        return [invalid(path, new, "must be between 0 and 2147483647, inclusive")], True
    if old is not None and old < new:
        return [invalid(path, new, "must be less than or equal to previous value")], True
    return [], False


def _bare(toleration: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _tolerations(new: Sequence[Any], old: Sequence[Any]) -> list[FieldError]:
    if new == old:
        return scheduling.tolerations(new, "spec.tolerations") if new else []
    offered = [_bare(toleration) for toleration in new]
    if any(_bare(toleration) not in offered for toleration in old):
        text = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden("spec.tolerations", text)]
    return scheduling.tolerations(new, "spec.tolerations")


def _gates(new: Sequence[Any], old: Sequence[Any]) -> list[FieldError]:
    names = {gate.get("name") for gate in old}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(new)
        if gate.get("name") not in names
    ]


def _other_fields(spec: Pod, before: Pod) -> list[FieldError]:
    munged = dict(spec)
    for group in ("containers", "initContainers"):
        if group in munged:
            munged[group] = [
                _with_image(new, old) for new, old in zip(munged[group], (before.get(group) or ()), strict=True)
            ]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put(munged, field, before.get(field))
    errors: list[FieldError] = []
    if before.get("schedulingGates"):
        errors += _gated(munged, before)
    if munged != before:
        errors.append(forbidden("spec", _UPDATABLE + difference("core.PodSpec", before, munged)))
    return errors


def _put(target: dict[str, Any], field: str, value: Any) -> None:
    if value is None:
        target.pop(field, None)
    else:
        target[field] = value


def _with_image(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    container = dict(new)
    _put(container, "image", old.get("image"))
    return container


def _gated(munged: dict[str, Any], before: Pod) -> list[FieldError]:
    """A gated pod may still be narrowed: more node selectors, more requirements."""
    errors: list[FieldError] = []
    new, old = munged.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if new != old:
        if any(new.get(key) != value for key, value in old.items()):
            text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            errors.append(invalid("spec.nodeSelector", new or None, text))
        _put(munged, "nodeSelector", before.get("nodeSelector"))
    new_affinity = (munged.get("affinity") or {}).get("nodeAffinity")
    old_affinity = (before.get("affinity") or {}).get("nodeAffinity")
    if new_affinity != old_affinity:
        errors += _node_affinity(new_affinity or {}, old_affinity or {})
        affinity = dict(munged.get("affinity") or {})
        _put(affinity, "nodeAffinity", old_affinity)
        _put(munged, "affinity", affinity or before.get("affinity"))
    return errors


def _node_affinity(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    if _REQUIRED not in old:
        return []
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    old_terms = old[_REQUIRED].get("nodeSelectorTerms") or []
    new_terms = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if old_terms and len(old_terms) != len(new_terms):
        shown = internal("[]core.NodeSelectorTerm", new_terms or None)
        return [invalid(path, shown, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    errors = []
    for index, (term, was) in enumerate(zip(new_terms, old_terms, strict=True)):
        if not _only_additions(term, was):
            shown = internal("core.NodeSelectorTerm", term)
            text = "only additions are allowed (no mutations or deletions)"
            errors.append(invalid(f"{path}[{index}]", shown, text))
    return errors


def _only_additions(term: Mapping[str, Any], was: Mapping[str, Any]) -> bool:
    fields = ("matchExpressions", "matchFields")
    if not any(was.get(field) for field in fields):
        return not any(term.get(field) for field in fields)
    return all((term.get(field) or [])[: len(was.get(field) or [])] == (was.get(field) or []) for field in fields)


def own_annotations(pod: Pod, old: Pod) -> list[FieldError]:
    """Annotations that only their writer may touch."""
    new, before = pod["metadata"].get("annotations", {}), old["metadata"].get("annotations", {})
    key = "kubernetes.io/config.mirror"
    path = f"metadata.annotations[{key}]"
    if key in before and new.get(key) != before[key]:
        return [forbidden(path, "may not remove or update mirror pod annotation")]
    if key in new and key not in before:
        return [forbidden(path, "may not add mirror pod annotation")]
    return []


_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")


def status(pod: Pod, old: Pod) -> list[FieldError]:
    """A write through the status subresource."""
    new, before = pod.get("status") or {}, old.get("status") or {}
    errors = own_annotations(pod, old)
    for index, condition in enumerate(new.get("conditions", ())):
        if condition.get("type", "") not in _SYSTEM_CONDITIONS:
            errors += label_name(condition.get("type", ""), f"status.conditions[{index}].Type")
    nominated = new.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        errors += [invalid("status.nominatedNodeName", nominated, text) for text in formats.subdomain(nominated)]
        if old["spec"].get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            errors.append(forbidden("status.nominatedNodeName", text))
    errors += immutable(new.get("qosClass", ""), before.get("qosClass", ""), "status.qosClass")
    errors += _states(new, before, old["spec"])
    for index, address in enumerate(new.get("podIPs", ())):
        errors += valid_ip(address.get("ip", ""), f"status.podIPs[{index}]")
    if new.get("hostIPs"):
        first = new["hostIPs"][0].get("ip", "")
        if first != new.get("hostIP", ""):
            errors.append(invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`"))
        for index, address in enumerate(new["hostIPs"]):
            errors += valid_ip(address.get("ip", ""), f"status.hostIPs[{index}]")
    return errors


def _states(new: Mapping[str, Any], before: Mapping[str, Any], spec: Pod) -> list[FieldError]:
    """A container that ended stays ended, unless its policy restarts it."""
    errors: list[FieldError] = []
    policies = {c.get("name"): c.get("restartPolicy") for c in (spec.get("containers") or ())}
    current = {entry.get("name"): entry for entry in new.get("containerStatuses", ())}
    for index, was in enumerate(before.get("containerStatuses", ())):
        ended = was.get("state", {}).get("terminated")
        now = current.get(was.get("name"))
        if ended is None or now is None or "terminated" in now.get("state", {}):
            continue
        policy = policies.get(was.get("name")) or spec.get("restartPolicy")
        if policy == "Never" or (policy == "OnFailure" and ended.get("exitCode", 0) == 0):
            text = "may not be transitioned to non-terminated state"
            errors.append(forbidden(f"status.containerStatuses[{index}].state", text))
    return errors


def resize(pod: Pod, old: Pod) -> list[FieldError]:
    """A write through the resize subresource: cpu and memory of containers."""
    errors: list[FieldError] = []
    if (old["spec"].get("os") or {}).get("name") == "windows":
        errors.append(forbidden("[]", "windows pods cannot be resized"))
    if old.get("status", {}).get("qosClass", qos_class(old["spec"])) != qos_class(pod["spec"]):
        shown = pod.get("status", {}).get("qosClass", "")
        errors.append(invalid("spec", shown, "Pod QOS Class may not change as a result of resizing"))
    running = [
        c for c in (old.get("status") or {}).get("containerStatuses") or () if "running" in (c.get("state") or {})
    ]
    if running and "resources" not in running[0]:
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    others = _other_containers(pod, old)
    if others:
        return errors + others
    errors += _resized_whole(pod["spec"].get("resources"), old["spec"].get("resources"))
    for group in ("containers", "initContainers"):
        new, was = (pod["spec"].get(group) or ()), (old["spec"].get(group) or ())
        for index, (container, before) in enumerate(zip(new, was, strict=True)):
            errors += _resized(container, before, f"spec.{group}[{index}].resources")
            if _without_compute(container) != _without_compute(before):
                errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return errors


def _other_containers(pod: Pod, old: Pod) -> list[FieldError]:
    """A resize finds the containers it knows, where it knows them."""
    errors: list[FieldError] = []
    for group in ("containers", "initContainers"):
        new, was = (pod["spec"].get(group) or ()), (old["spec"].get(group) or ())
        if len(new) != len(was):
            errors.append(forbidden(f"spec.{group}", f"{group} may not be added or removed on resize"))
            continue
        for index, (container, before) in enumerate(zip(new, was, strict=True)):
            if container.get("name") != before.get("name"):
                text = f"{group} may not be renamed or reordered on resize"
                errors.append(forbidden(f"spec.{group}[{index}].name", text))
    return errors


def _resized(container: Mapping[str, Any], before: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for part in ("requests", "limits"):
        new, was = container.get("resources", {}).get(part, {}), before.get("resources", {}).get(part, {})
        if any(name in was and name not in new for name in ("cpu", "memory")):
            errors.append(forbidden(f"{path}.{part}", f"resource {part} cannot be removed"))
    return errors


def _resized_whole(new: Mapping[str, Any] | None, was: Mapping[str, Any] | None) -> list[FieldError]:
    """Resources of the pod as a whole, once set, stay set."""
    if not was:
        return []
    if not new:
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    return [
        forbidden(f"spec.resources.{part}", f"pod-level resource {part} cannot be removed")
        for part in ("requests", "limits")
        if any(name not in (new.get(part) or {}) for name in was.get(part) or ())
    ]


def _without_compute(container: Mapping[str, Any]) -> dict[str, Any]:
    copy = {key: value for key, value in container.items() if key != "resources"}
    copy["resources"] = {
        part: {
            name: text
            for name, text in (container.get("resources", {}).get(part) or {}).items()
            if name not in ("cpu", "memory")
        }
        for part in ("requests", "limits")
    }
    return copy
