"""A whole pod spec, checked: in a pod, and in a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds.pod import containers, volumes
from dovetail.lab.apiserver.kinds.pod.security import pod_security
from dovetail.model import formats
from dovetail.model.validation import metadata, resources, scheduling
from dovetail.model.validation.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from dovetail.model.validation.selectors import label_name

Spec = Mapping[str, Any]
_MAX_INT32 = 2**31 - 1
_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def check_spec(spec: Spec, path: str, pod: str | None) -> list[FieldError]:
    """`pod` is the name of the pod whose spec this is, None for a template."""
    errors: list[FieldError] = []
    if "terminationGracePeriodSeconds" not in spec:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    usable: Mapping[str, Any] = {}
    if spec.get("volumes"):
        usable, complaints = volumes.check(spec["volumes"], f"{path}.volumes", pod)
        errors += complaints
    around = containers.PodContext(spec, usable)
    if "resourceClaims" in spec:
        errors += _claims(spec["resourceClaims"], f"{path}.resourceClaims")
    main = spec.get("containers") or ()
    errors += containers.main_containers(main, f"{path}.containers", around)
    if "initContainers" in spec:
        errors += containers.init_containers(spec["initContainers"], main, f"{path}.initContainers", around)
    if "ephemeralContainers" in spec:
        errors += containers.ephemeral_containers(spec, f"{path}.ephemeralContainers", around)
    if "resources" in spec:
        errors += _pod_resources(spec, f"{path}.resources")
    if spec.get("hostNetwork"):
        errors += _host_network(spec, path, pod is not None)
    errors += _choice(spec.get("restartPolicy", ""), _RESTART, f"{path}.restartPolicy")
    errors += _choice(spec.get("dnsPolicy", ""), _DNS, f"{path}.dnsPolicy")
    if "nodeSelector" in spec:
        errors += metadata.labels(spec["nodeSelector"], f"{path}.nodeSelector")
    errors += pod_security(spec, path)
    if "affinity" in spec:
        errors += scheduling.affinity(spec["affinity"], f"{path}.affinity")
    if "dnsConfig" in spec or spec.get("dnsPolicy") == "None":
        errors += scheduling.dns(spec, path)
    return errors + _gates(spec, path) + _rest(spec, path)


def _choice(value: str, supported: tuple[str, ...], path: str) -> list[FieldError]:
    if value in supported:
        return []
    return [unsupported(path, value, supported) if value else required(path)]


def _claims(claims: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        field_path, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            errors.append(required(f"{field_path}.name"))
        elif name in seen:
            errors.append(duplicate(f"{field_path}.name", name))
        else:
            errors += [invalid(f"{field_path}.name", name, text) for text in formats.label(name)]
            seen.add(name)
        shown = {
            "Name": name,
            "ResourceClaimName": claim.get("resourceClaimName"),
            "ResourceClaimTemplateName": claim.get("resourceClaimTemplateName"),
        }
        both = ("resourceClaimName" in claim) + ("resourceClaimTemplateName" in claim)
        if both == 2:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid(field_path, shown, text))
        if both == 0:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid(field_path, shown, text))
    return errors


def _pod_resources(spec: Spec, path: str) -> list[FieldError]:
    own = spec["resources"]
    errors: list[FieldError] = []
    if "claims" in own:
        errors.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    errors += resources.requirements(own, path, name_rule=resources.pod_resource_name)
    totals: dict[str, Any] = {}
    for container in spec.get("containers") or ():
        for name, text in container.get("resources", {}).get("requests", {}).items():
            amount = resources.amount(text)
            totals[name] = totals[name] + amount if name in totals else amount
    for name, total in sorted(totals.items()):
        request = own.get("requests", {}).get(name)
        if request is not None and total > resources.amount(request):
            text = f"must be greater than or equal to aggregate container requests of {total}"
            errors.append(invalid(f"{path}.requests[{name}]", request, text))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in sorted(container.get("resources", {}).get("limits", {}).items()):
            limit = own.get("limits", {}).get(name)
            if limit is not None and resources.amount(text) > resources.amount(limit):
                field_path = f"{path}.containers[{index}][{name}].limits"
                errors.append(invalid(field_path, text, f"must be less than or equal to pod limits of {limit}"))
    return errors


def _host_network(spec: Spec, path: str, pod: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports", ())):
            host = port.get("hostPort", 0)
            if (pod or host) and host != port.get("containerPort", 0):
                field_path = f"{path}.containers[{index}].ports[{number}].hostPort"
                errors.append(invalid(field_path, host, "must match `containerPort` when `hostNetwork` is true"))
    return errors


def _gates(spec: Spec, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, gate in enumerate(spec.get("readinessGates", ())):
        errors += label_name(gate.get("conditionType", ""), f"{path}.readinessGates[{index}].conditionType")
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates", ())):
        name, field_path = gate.get("name", ""), f"{path}.schedulingGates[{index}]"
        errors += label_name(name, field_path)
        if name in seen:
            errors.append(duplicate(field_path, name))
        seen.add(name)
    if "topologySpreadConstraints" in spec:
        errors += scheduling.spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints")
    return errors


_NAMES = (
    ("serviceAccountName", formats.subdomain),
    ("nodeName", formats.subdomain),
)
_LATER_NAMES = (("hostname", formats.label), ("subdomain", formats.label))


def _rest(spec: Spec, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if spec.get("hostUsers") is False:
        shared = [name for name in ("hostNetwork", "HostPID", "HostIPC") if spec.get(_lower(name))]
        errors += [forbidden(f"{path}.{name}", "when `hostUsers` is false") for name in shared]
    if "hostnameOverride" in spec:
        errors += _hostname(spec, path)
    for field, rule in _NAMES:
        if spec.get(field):
            errors += [invalid(f"{path}.{field}", spec[field], text) for text in rule(spec[field])]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        texts = formats.in_range(deadline, 1, _MAX_INT32)
        errors += [invalid(f"{path}.activeDeadlineSeconds", deadline, text) for text in texts]
    for field, rule in _LATER_NAMES:
        if spec.get(field):
            errors += [invalid(f"{path}.{field}", spec[field], text) for text in rule(spec[field])]
    if "tolerations" in spec:
        errors += scheduling.tolerations(spec["tolerations"], f"{path}.tolerations")
    if "hostAliases" in spec:
        errors += scheduling.host_aliases(spec["hostAliases"], f"{path}.hostAliases")
    for field in ("priorityClassName", "runtimeClassName"):
        if spec.get(field):
            errors += [invalid(f"{path}.{field}", spec[field], text) for text in formats.subdomain(spec[field])]
    if "preemptionPolicy" in spec:
        errors += _choice(spec["preemptionPolicy"], ("PreemptLowerPriority", "Never"), f"{path}.preemptionPolicy")
    if "overhead" in spec:
        errors += resources.requirements({"limits": spec["overhead"]}, f"{path}.overhead")
    if "os" in spec:
        name = spec["os"].get("name", "")
        if not name:
            errors.append(required(f"{path}.os.name"))
        elif name not in ("linux", "windows"):
            errors.append(unsupported(f"{path}.os", name, ("linux", "windows")))
    return errors


def _lower(name: str) -> str:
    return name[0].lower() + name[1:]


def _hostname(spec: Spec, path: str) -> list[FieldError]:
    field_path, name = f"{path}.hostnameOverride", spec["hostnameOverride"]
    errors: list[FieldError] = []
    if spec.get("setHostnameAsFQDN"):
        errors.append(forbidden(field_path, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errors.append(forbidden(field_path, "may not be specified when hostNetwork is true"))
    if formats.size(name) > 64:
        errors.append(too_long(field_path, 64))
    return errors + [invalid(field_path, name, text) for text in formats.subdomain(name)]


def pod_annotations(annotations: Mapping[str, str], spec: Spec, path: str) -> list[FieldError]:
    """Annotations with a meaning to pods."""
    errors: list[FieldError] = []
    mirror_pod = annotations.get("kubernetes.io/config.mirror")
    if mirror_pod is not None and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(f"{path}[kubernetes.io/config.mirror]", mirror_pod, text))
    cost = annotations.get("controller.kubernetes.io/pod-deletion-cost")
    if cost is not None and not _is_int32(cost):
        field_path = f"{path}[controller.kubernetes.io/pod-deletion-cost]"
        errors.append(invalid(field_path, cost, "must be a 32bit integer"))
    return errors


def _is_int32(text: str) -> bool:
    digits = text.removeprefix("-") if text != "0" else "0"
    if not digits.isascii() or not digits.isdigit() or (digits[0] == "0" and len(digits) > 1):
        return False
    return -(2**31) <= int(text) < 2**31


def check_template(template: Spec, path: str) -> list[FieldError]:
    """A pod template of a workload."""
    meta = template.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    errors = metadata.labels(meta.get("labels") or {}, f"{path}.labels")
    errors += metadata.annotation_set(annotations, f"{path}.annotations")
    spec = template.get("spec") or {}
    errors += pod_annotations(annotations, spec, f"{path}.annotations")
    errors += check_spec(spec, f"{path}.spec", None)
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", text))
    return errors
