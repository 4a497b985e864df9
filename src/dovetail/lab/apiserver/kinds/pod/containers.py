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


class Surroundings:
    """What a container's checks need to know of its pod."""

    def __init__(self, spec: Mapping[str, Any], volumes: Mapping[str, Any]) -> None:
        self.volumes = volumes
        self.claims = frozenset(claim.get("name", "") for claim in spec.get("resourceClaims", ()))
        self.grace = spec.get("terminationGracePeriodSeconds")
        self.restart_policy = spec.get("restartPolicy", "")
        self.host_users = spec.get("hostUsers", True)


def common(container: Container, path: str, around: Surroundings) -> list[FieldError]:
    found: list[FieldError] = []
    name = container.get("name", "")
    if not name:
        found.append(required(f"{path}.name"))
    else:
        found += [invalid(f"{path}.name", name, text) for text in formats.label(name)]
    if not container.get("image"):
        found.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy", "")
    if policy not in ("File", "FallbackToLogsOnError"):
        at = f"{path}.terminationMessagePolicy"
        found.append(unsupported(at, policy, ("File", "FallbackToLogsOnError")) if policy else required(at))
    if "ports" in container:
        found += container_ports(container["ports"], f"{path}.ports")
    if "env" in container:
        found += environment.variables(container["env"], f"{path}.env")
    if "envFrom" in container:
        found += environment.sources(container["envFrom"], f"{path}.envFrom")
    if "volumeMounts" in container:
        found += mounts(container, around.volumes, f"{path}.volumeMounts")
    if "volumeDevices" in container:
        found += devices(container, around.volumes, f"{path}.volumeDevices")
    found += pull_policy(container.get("imagePullPolicy", ""), f"{path}.imagePullPolicy")
    if container.get("resources"):
        found += resources.requirements(container["resources"], f"{path}.resources", around.claims)
    if "resizePolicy" in container:
        found += resize_policy(container["resizePolicy"], f"{path}.resizePolicy", around.restart_policy)
    if "securityContext" in container:
        found += container_security(container["securityContext"], f"{path}.securityContext", around.host_users)
    return found


def pull_policy(policy: str, path: str) -> list[FieldError]:
    if policy in PULL_POLICIES:
        return []
    return [unsupported(path, policy, PULL_POLICIES) if policy else required(path)]


def mounts(container: Container, volumes: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    used = {device.get("name"): device.get("devicePath") for device in container.get("volumeDevices", ())}
    for index, mount in enumerate(container["volumeMounts"]):
        at, name, where = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(required(f"{at}.name"))
        if name not in volumes:
            found.append(not_found(f"{at}.name", name))
        if not where:
            found.append(required(f"{at}.mountPath"))
        if where in seen:
            found.append(invalid(f"{at}.mountPath", where, "must be unique"))
        seen.add(where)
        if name in used:
            found.append(invalid(f"{at}.name", name, "must not already exist in volumeDevices"))
        if where in used.values():
            text = "must not already exist as a path in volumeDevices"
            found.append(invalid(f"{at}.mountPath", where, text))
        found += _mount_options(mount, container, path, at)
    return found


def _mount_options(mount: Mapping[str, Any], container: Container, path: str, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    if mount.get("subPath"):
        found += descending_path(mount["subPath"], f"{path}.subPath")
    if mount.get("subPathExpr"):
        if mount.get("subPath"):
            text = "subPathExpr and subPath are mutually exclusive"
            found.append(invalid(f"{at}.subPathExpr", mount["subPathExpr"], text))
        found += descending_path(mount["subPathExpr"], f"{path}.subPathExpr")
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        known = ("Bidirectional", "HostToContainer", "None")
        where = f"{path}.mountPropagation"
        if propagation not in known:
            found.append(unsupported(where, propagation, known))
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            found.append(forbidden(where, text))
    recursive = mount.get("recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        where = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            found.append(forbidden(where, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            text = "may only be specified when mountPropagation is None or not specified"
            found.append(forbidden(where, text))
    elif recursive not in (None, "Disabled"):
        known = ("Disabled", "Enabled", "IfPossible")
        found.append(unsupported(f"{path}.recursiveReadOnly", recursive, known))
    return found


def devices(container: Container, volumes: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    paths: set[str] = set()
    names: set[str] = set()
    mounted = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts", ())}
    for index, device in enumerate(container["volumeDevices"]):
        at, name, where = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            found.append(required(f"{at}.name"))
        if name in names:
            found.append(invalid(f"{at}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            found.append(not_found(f"{at}.name", name))
        elif not {"persistentVolumeClaim", "ephemeral"} & set(volume):
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.append(invalid(f"{at}.name", name, text))
        if not where:
            found.append(required(f"{at}.devicePath"))
        if where in paths:
            found.append(invalid(f"{at}.devicePath", where, "must be unique"))
        if where and no_backsteps(where, ""):
            found.append(invalid(f"{at}.devicePath", where, "can not contain backsteps ('..')"))
        else:
            paths.add(where)
        if name in mounted:
            found.append(invalid(f"{at}.name", name, "must not already exist in volumeMounts"))
        if where in mounted.values():
            text = "must not already exist as a path in volumeMounts"
            found.append(invalid(f"{at}.devicePath", where, text))
        names.add(name)
    return found


def resize_policy(policies: Sequence[Mapping[str, Any]], path: str, restart: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, action = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        if name not in ("cpu", "memory"):
            found.append(unsupported(path, name, ("cpu", "memory")) if name else required(path))
        if action not in ("NotRequired", "RestartContainer"):
            known = ("NotRequired", "RestartContainer")
            found.append(unsupported(path, action, known) if action else required(path))
        if restart == "Never" and action != "NotRequired":
            found.append(invalid(path, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
    return found


def restart_rules(container: Container, path: str) -> list[FieldError]:
    """A container's own restart policy."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", ())
    found: list[FieldError] = []
    if policy is None:
        if not rules:
            return []
        text = "must specify restartPolicy when restart rules are used"
        found.append(required(f"{path}.restartPolicy", text))
    elif policy not in ("Always", "Never", "OnFailure"):
        found.append(unsupported(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
    if len(rules) > 20:
        found.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{index}]"
        actions = ("Restart", "RestartAllContainers")
        if rule.get("action", "") not in actions:
            found.append(unsupported(f"{at}.action", rule.get("action", ""), actions))
        codes = rule.get("exitCodes")
        if codes is None:
            found.append(required(f"{at}.exitCodes", "must be specified"))
            continue
        if codes.get("operator", "") not in ("In", "NotIn"):
            found.append(unsupported(f"{at}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn")))
        if len(codes.get("values") or ()) > 255:
            found.append(too_many(f"{at}.exitCodes.values", len(codes["values"]), 255))
    return found


def main_containers(entries: Sequence[Container], path: str, around: Surroundings) -> list[FieldError]:
    if not entries:
        return [required(path)]
    found: list[FieldError] = []
    names: set[str] = set()
    for index, container in enumerate(entries):
        at = f"{path}[{index}]"
        found += common(container, at, around)
        name = container.get("name", "")
        if name in names:
            found.append(duplicate(f"{at}.name", name))
        names.add(name)
        found += _lifecycle_and_probes(container, at, around)
        found += restart_rules(container, at)
    return found + host_port_conflicts(entries, path)


def _lifecycle_and_probes(container: Container, at: str, around: Surroundings) -> list[FieldError]:
    from dovetail.lab.apiserver.kinds.pod import probes

    found: list[FieldError] = []
    if "lifecycle" in container:
        found += probes.lifecycle(container["lifecycle"], f"{at}.lifecycle", around.grace)
    for name in _PROBES:
        if name in container:
            found += probes.probe(container[name], name, f"{at}.{name}", around.grace)
    return found


def host_port_conflicts(entries: Sequence[Container], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(entries):
        for number, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                if key in seen:
                    found.append(duplicate(f"{path}[{index}].ports[{number}].hostPort", key))
                seen.add(key)
    return found


def init_containers(
    entries: Sequence[Container], main: Sequence[Container], path: str, around: Surroundings
) -> list[FieldError]:
    found: list[FieldError] = []
    names = {container.get("name", "") for container in main}
    for index, container in enumerate(entries):
        at = f"{path}[{index}]"
        found += common(container, at, around)
        found += restart_rules(container, at)
        name = container.get("name", "")
        if name in names:
            found.append(duplicate(f"{at}.name", name))
        elif name:
            names.add(name)
        found += host_port_conflicts([container], path)
        if container.get("restartPolicy") == "Always":
            found += _lifecycle_and_probes(container, at, around)
            continue
        found += [forbidden(f"{at}.{field}", _NOT_SIDECAR) for field in ("lifecycle", *_PROBES) if field in container]
        for number, policy in enumerate(container.get("resizePolicy", ())):
            if policy.get("restartPolicy") == "RestartContainer":
                text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                found.append(invalid(f"{at}.resizePolicy[{number}].restartPolicy", "RestartContainer", text))
    return found


_EPHEMERAL_FORBIDDEN = ("ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def ephemeral_containers(spec: Mapping[str, Any], path: str, around: Surroundings) -> list[FieldError]:
    found: list[FieldError] = []
    others = {c.get("name", "") for group in ("containers", "initContainers") for c in (spec.get(group) or ())}
    names = set(others)
    for index, container in enumerate(spec.get("ephemeralContainers", ())):
        at = f"{path}[{index}]"
        found += common(container, at, around) + only_for_pod(container, at)
        name = container.get("name", "")
        if name in names:
            found.append(duplicate(f"{at}.name", name))
        names.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in others:
            found.append(not_found(f"{at}.targetContainerName", target))
        text = "cannot be set for an Ephemeral Container"
        found += [forbidden(f"{at}.{field}", text) for field in _EPHEMERAL_FORBIDDEN if container.get(field)]
        for number, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    found.append(forbidden(f"{at}.volumeMounts[{number}].{field}", text))
    return found


def only_for_pod(container: Container, path: str) -> list[FieldError]:
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]
