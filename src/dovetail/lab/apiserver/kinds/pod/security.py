"""Security contexts of pods and containers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds.pod.volumes import descending_path
from dovetail.model import formats
from dovetail.model.validation.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)

Security = Mapping[str, Any]
_MAX_ID = 2**31 - 1
_MAX_PATH = 4095
_SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")


def _ids(context: Security, names: tuple[str, ...], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in names:
        if name in context:
            texts = formats.in_range(context[name], 0, _MAX_ID)
            errors += [invalid(f"{path}.{name}", context[name], text) for text in texts]
    return errors


def seccomp(profile: Security, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = profile.get("type", "")
    if not kind:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _SECCOMP:
        errors.append(unsupported(f"{path}.type", kind, _SECCOMP))
    if kind == "Localhost":
        if "localhostProfile" not in profile:
            text = "must be set when seccomp type is Localhost"
            errors.append(required(f"{path}.localhostProfile", text))
        else:
            errors += descending_path(profile["localhostProfile"], f"{path}.localhostProfile")
    elif "localhostProfile" in profile:
        shown = {"Type": kind, "LocalhostProfile": profile["localhostProfile"]}
        text = "can only be set when seccomp type is Localhost"
        errors.append(invalid(f"{path}.localhostProfile", shown, text))
    return errors


def app_armor(profile: Security, path: str) -> list[FieldError]:
    kind, name = profile.get("type", ""), profile.get("localhostProfile")
    field_path = f"{path}.localhostProfile"
    if not kind:
        return [required(f"{path}.type", "type is required when appArmorProfile is set")]
    if kind not in _SECCOMP:
        return [unsupported(f"{path}.type", kind, _SECCOMP)]
    if kind != "Localhost":
        return [] if name is None else [invalid(field_path, name, "can only be set when AppArmor type is Localhost")]
    if not name:
        return [required(field_path, "must be set when AppArmor type is Localhost")]
    if name.strip() != name:
        return [invalid(field_path, name, "must not be padded with whitespace")]
    return [too_long(field_path, _MAX_PATH)] if formats.size(name) > _MAX_PATH else []


def container_security(context: Security, path: str, host_users: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if context.get("privileged"):
        errors += _privileged(context, path)
    errors += _ids(context, ("runAsUser", "runAsGroup"), path)
    if "procMount" in context:
        mount = context["procMount"]
        if mount not in ("Default", "Unmasked"):
            errors.append(unsupported(f"{path}.procMount", mount, ("Default", "Unmasked")))
        if host_users and mount == "Unmasked":
            text = "`hostUsers` must be false to use `Unmasked`"
            errors.append(invalid(f"{path}.procMount", mount, text))
    if "seccompProfile" in context:
        errors += seccomp(context["seccompProfile"], f"{path}.seccompProfile")
    if "appArmorProfile" in context:
        errors += app_armor(context["appArmorProfile"], f"{path}.appArmorProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(invalid(path, internal_security(context), text))
        if "CAP_SYS_ADMIN" in context.get("capabilities", {}).get("add", ()):
            text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.append(invalid(path, internal_security(context), text))
    return errors


def _privileged(context: Security, path: str) -> list[FieldError]:
    """The real server refuses privileged containers unless it was started with --allow-privileged."""
    return [forbidden(f"{path}.privileged", "disallowed by cluster policy")] if not ALLOW_PRIVILEGED else []


ALLOW_PRIVILEGED = True
_INTERNAL = [
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
]


def internal_security(context: Security) -> dict[str, Any]:
    """A security context as the server's internal type prints it."""
    shown = {name[0].upper() + name[1:]: context.get(name) for name in _INTERNAL}
    shown = {name.replace("SeLinux", "SELinux"): value for name, value in shown.items()}
    if shown["Capabilities"] is not None:
        capabilities = context["capabilities"]
        shown["Capabilities"] = {"Add": capabilities.get("add"), "Drop": capabilities.get("drop")}
    return shown


def pod_security(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    context: Security = spec.get("securityContext") or {}
    field_path = f"{path}.securityContext"
    errors = _ids(context, ("fsGroup", "runAsUser", "runAsGroup"), field_path) if context else []
    for index, group in enumerate(context.get("supplementalGroups", ())):
        texts = formats.in_range(group, 0, _MAX_ID)
        errors += [invalid(f"{field_path}.supplementalGroups[{index}]", group, text) for text in texts]
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{field_path}.shareProcessNamespace", True, text))
    if "sysctls" in context:
        errors += _sysctls(context["sysctls"], f"{field_path}.sysctls")
    policy = context.get("fsGroupChangePolicy")
    if policy not in (None, "Always", "OnRootMismatch"):
        errors.append(unsupported(f"{field_path}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch")))
    if "seccompProfile" in context:
        errors += seccomp(context["seccompProfile"], f"{field_path}.seccompProfile")
    if "appArmorProfile" in context:
        errors += app_armor(context["appArmorProfile"], f"{field_path}.appArmorProfile")
    policy = context.get("supplementalGroupsPolicy")
    if policy not in (None, "Merge", "Strict"):
        errors.append(unsupported(f"{field_path}.supplementalGroupsPolicy", policy, ("Merge", "Strict")))
    return errors


def _sysctls(entries: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        name, field_path = entry.get("name", ""), f"{path}[{index}].name"
        if not name:
            errors.append(required(field_path))
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            errors.append(invalid(field_path, name, f"must have at most 253 characters and match regex {_SYSCTL}"))
        elif name in seen:
            errors.append(duplicate(field_path, name))
        seen.add(name)
    return errors
