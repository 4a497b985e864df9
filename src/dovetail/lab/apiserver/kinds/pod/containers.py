"""Containers: names, images, ports, environment, mounts, probes, lifecycle, security."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.pod import environment
from dovetail.lab.apiserver.kinds.pod.security import container_security
from dovetail.lab.apiserver.kinds.pod.volumes import descending_path
from dovetail.lab.apiserver.kinds.volume_rules import no_backsteps
from dovetail.model import formats
from dovetail.model.validation import resources
from dovetail.model.validation.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    too_many,
    unsupported,
)
from dovetail.model.validation.ports import container_ports

Container = Mapping[str, Any]
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_NOT_SIDECAR = "may not be set for init containers without restartPolicy=Always"
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


class PodContext:
    """What a container's checks need to know of its pod."""

    def __init__(self, spec: Mapping[str, Any], volumes: Mapping[str, Any]) -> None:
        self.volumes = volumes
        self.claims = frozenset(claim.get("name", "") for claim in spec.get("resourceClaims", ()))
        self.grace = spec.get("terminationGracePeriodSeconds")
        self.restart_policy = spec.get("restartPolicy", "")
        self.host_users = spec.get("hostUsers", True)


def common(container: Container, path: str, around: PodContext) -> list[FieldError]:
    errors: list[FieldError] = []
    name = container.get("name", "")
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        errors += [invalid(f"{path}.name", name, text) for text in formats.label(name)]
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy", "")
    if policy not in ("File", "FallbackToLogsOnError"):
        field_path = f"{path}.terminationMessagePolicy"
        errors.append(
            unsupported(field_path, policy, ("File", "FallbackToLogsOnError")) if policy else required(field_path)
        )
    if "ports" in container:
        errors += container_ports(container["ports"], f"{path}.ports")
    if "env" in container:
        errors += environment.variables(container["env"], f"{path}.env")
    if "envFrom" in container:
        errors += environment.sources(container["envFrom"], f"{path}.envFrom")
    if "volumeMounts" in container:
        errors += mounts(container, around.volumes, f"{path}.volumeMounts")
    if "volumeDevices" in container:
        errors += devices(container, around.volumes, f"{path}.volumeDevices")
    errors += pull_policy(container.get("imagePullPolicy", ""), f"{path}.imagePullPolicy")
    if container.get("resources"):
        errors += resources.requirements(container["resources"], f"{path}.resources", around.claims)
    if "resizePolicy" in container:
        errors += resize_policy(container["resizePolicy"], f"{path}.resizePolicy", around.restart_policy)
    if "securityContext" in container:
        errors += container_security(container["securityContext"], f"{path}.securityContext", around.host_users)
    return errors


def pull_policy(policy: str, path: str) -> list[FieldError]:
    if policy in PULL_POLICIES:
        return []
    return [unsupported(path, policy, PULL_POLICIES) if policy else required(path)]


def mounts(container: Container, volumes: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    used = {device.get("name"): device.get("devicePath") for device in container.get("volumeDevices", ())}
    for index, mount in enumerate(container["volumeMounts"]):
        field_path, name, where = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{field_path}.name"))
        if name not in volumes:
            errors.append(not_found(f"{field_path}.name", name))
        if not where:
            errors.append(required(f"{field_path}.mountPath"))
        if where in seen:
            errors.append(invalid(f"{field_path}.mountPath", where, "must be unique"))
        seen.add(where)
        if name in used:
            errors.append(invalid(f"{field_path}.name", name, "must not already exist in volumeDevices"))
        if where in used.values():
            text = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{field_path}.mountPath", where, text))
        errors += _mount_options(mount, container, path, field_path)
    return errors


def _mount_options(mount: Mapping[str, Any], container: Container, path: str, field_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if mount.get("subPath"):
        errors += descending_path(mount["subPath"], f"{path}.subPath")
    if mount.get("subPathExpr"):
        if mount.get("subPath"):
            text = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(f"{field_path}.subPathExpr", mount["subPathExpr"], text))
        errors += descending_path(mount["subPathExpr"], f"{path}.subPathExpr")
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        supported = ("Bidirectional", "HostToContainer", "None")
        where = f"{path}.mountPropagation"
        if propagation not in supported:
            errors.append(unsupported(where, propagation, supported))
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden(where, text))
    recursive = mount.get("recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        where = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            errors.append(forbidden(where, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            text = "may only be specified when mountPropagation is None or not specified"
            errors.append(forbidden(where, text))
    elif recursive not in (None, "Disabled"):
        supported = ("Disabled", "Enabled", "IfPossible")
        errors.append(unsupported(f"{path}.recursiveReadOnly", recursive, supported))
    return errors


def devices(container: Container, volumes: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    paths: set[str] = set()
    names: set[str] = set()
    mounted = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts", ())}
    for index, device in enumerate(container["volumeDevices"]):
        field_path, name, where = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            errors.append(required(f"{field_path}.name"))
        if name in names:
            errors.append(invalid(f"{field_path}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errors.append(not_found(f"{field_path}.name", name))
        elif not {"persistentVolumeClaim", "ephemeral"} & set(volume):
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid(f"{field_path}.name", name, text))
        if not where:
            errors.append(required(f"{field_path}.devicePath"))
        if where in paths:
            errors.append(invalid(f"{field_path}.devicePath", where, "must be unique"))
        if where and no_backsteps(where, ""):
            errors.append(invalid(f"{field_path}.devicePath", where, "can not contain backsteps ('..')"))
        else:
            paths.add(where)
        if name in mounted:
            errors.append(invalid(f"{field_path}.name", name, "must not already exist in volumeMounts"))
        if where in mounted.values():
            text = "must not already exist as a path in volumeMounts"
            errors.append(invalid(f"{field_path}.devicePath", where, text))
        names.add(name)
    return errors


def resize_policy(policies: Sequence[Mapping[str, Any]], path: str, restart: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, action = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        if name not in ("cpu", "memory"):
            errors.append(unsupported(path, name, ("cpu", "memory")) if name else required(path))
        if action not in ("NotRequired", "RestartContainer"):
            supported = ("NotRequired", "RestartContainer")
            errors.append(unsupported(path, action, supported) if action else required(path))
        if restart == "Never" and action != "NotRequired":
            errors.append(invalid(path, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
    return errors


def restart_rules(container: Container, path: str) -> list[FieldError]:
    """A container's own restart policy."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", ())
    errors: list[FieldError] = []
    if policy is None:
        if not rules:
            return []
        text = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", text))
    elif policy not in ("Always", "Never", "OnFailure"):
        errors.append(unsupported(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
    if len(rules) > 20:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        field_path = f"{path}.restartPolicyRules[{index}]"
        actions = ("Restart", "RestartAllContainers")
        if rule.get("action", "") not in actions:
            errors.append(unsupported(f"{field_path}.action", rule.get("action", ""), actions))
        codes = rule.get("exitCodes")
        if codes is None:
            errors.append(required(f"{field_path}.exitCodes", "must be specified"))
            continue
        if codes.get("operator", "") not in ("In", "NotIn"):
            errors.append(unsupported(f"{field_path}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn")))
        if len(codes.get("values") or ()) > 255:
            errors.append(too_many(f"{field_path}.exitCodes.values", len(codes["values"]), 255))
    return errors


def main_containers(entries: Sequence[Container], path: str, around: PodContext) -> list[FieldError]:
    if not entries:
        return [required(path)]
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, container in enumerate(entries):
        field_path = f"{path}[{index}]"
        errors += common(container, field_path, around)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{field_path}.name", name))
        names.add(name)
        errors += _lifecycle_and_probes(container, field_path, around)
        errors += restart_rules(container, field_path)
    return errors + host_port_conflicts(entries, path)


def _lifecycle_and_probes(container: Container, field_path: str, around: PodContext) -> list[FieldError]:
    from dovetail.lab.apiserver.kinds.pod import probes

    errors: list[FieldError] = []
    if "lifecycle" in container:
        errors += probes.lifecycle(container["lifecycle"], f"{field_path}.lifecycle", around.grace)
    for name in _PROBES:
        if name in container:
            errors += probes.probe(container[name], name, f"{field_path}.{name}", around.grace)
    return errors


def host_port_conflicts(entries: Sequence[Container], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(entries):
        for number, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                if key in seen:
                    errors.append(duplicate(f"{path}[{index}].ports[{number}].hostPort", key))
                seen.add(key)
    return errors


def init_containers(
    entries: Sequence[Container], main: Sequence[Container], path: str, around: PodContext
) -> list[FieldError]:
    errors: list[FieldError] = []
    names = {container.get("name", "") for container in main}
    for index, container in enumerate(entries):
        field_path = f"{path}[{index}]"
        errors += common(container, field_path, around)
        errors += restart_rules(container, field_path)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{field_path}.name", name))
        elif name:
            names.add(name)
        errors += host_port_conflicts([container], path)
        if container.get("restartPolicy") == "Always":
            errors += _lifecycle_and_probes(container, field_path, around)
            continue
        errors += [
            forbidden(f"{field_path}.{field}", _NOT_SIDECAR) for field in ("lifecycle", *_PROBES) if field in container
        ]
        for number, policy in enumerate(container.get("resizePolicy", ())):
            if policy.get("restartPolicy") == "RestartContainer":
                text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                errors.append(invalid(f"{field_path}.resizePolicy[{number}].restartPolicy", "RestartContainer", text))
    return errors


_EPHEMERAL_FORBIDDEN = ("ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def ephemeral_containers(spec: Mapping[str, Any], path: str, around: PodContext) -> list[FieldError]:
    errors: list[FieldError] = []
    others = {c.get("name", "") for group in ("containers", "initContainers") for c in (spec.get(group) or ())}
    names = set(others)
    for index, container in enumerate(spec.get("ephemeralContainers", ())):
        field_path = f"{path}[{index}]"
        errors += common(container, field_path, around) + only_for_pod(container, field_path)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{field_path}.name", name))
        names.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in others:
            errors.append(not_found(f"{field_path}.targetContainerName", target))
        text = "cannot be set for an Ephemeral Container"
        errors += [forbidden(f"{field_path}.{field}", text) for field in _EPHEMERAL_FORBIDDEN if container.get(field)]
        for number, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    errors.append(forbidden(f"{field_path}.volumeMounts[{number}].{field}", text))
    return errors


def only_for_pod(container: Container, path: str) -> list[FieldError]:
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]
