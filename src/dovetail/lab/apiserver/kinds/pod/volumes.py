"""Volumes of a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.claims import claim_template
from dovetail.lab.apiserver.kinds.pod import environment
from dovetail.lab.apiserver.kinds.volume_rules import csi_driver_name, no_backsteps
from dovetail.model import formats
from dovetail.model.validation.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    quoted,
    required,
    unsupported,
)

Source = Mapping[str, Any]
MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_ORDER = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
]
_REQUIRED = {
    "gitRepo": ("repository",),
    "awsElasticBlockStore": ("volumeID",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "cinder": ("volumeID",),
    "vsphereVolume": ("volumePath",),
}


def descending_path(path: str, field_path: str) -> list[FieldError]:
    errors = [invalid(field_path, path, "must be a relative path")] if path.startswith("/") else []
    return errors + no_backsteps(path, field_path)


def local_path(path: str, field_path: str) -> list[FieldError]:
    errors = descending_path(path, field_path)
    if path.startswith("..") and not path.startswith("../"):
        errors.append(invalid(field_path, path, "must not start with '..'"))
    return errors


def check(volumes: Sequence[Source], path: str, pod: str | None) -> tuple[dict[str, Source], list[FieldError]]:
    """The usable volumes by name, and the complaints; `pod` is the pod's name, None in a template."""
    errors: list[FieldError] = []
    usable: dict[str, Source] = {}
    made = {f"{pod}-{volume.get('name', '')}" for volume in volumes if pod and "ephemeral" in volume}
    for index, volume in enumerate(volumes):
        field_path, name = f"{path}[{index}]", volume.get("name", "")
        own = _source(volume, field_path, pod)
        if not name:
            own.append(required(f"{field_path}.name"))
        else:
            own += [invalid(f"{field_path}.name", name, text) for text in formats.label(name)]
        if name in usable:
            own.append(duplicate(f"{field_path}.name", name))
        if not own:
            usable[name] = volume
        errors += own
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claim in made:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{field_path}.persistentVolumeClaim.claimName", claim, text))
    return usable, errors


def _source(volume: Source, path: str, pod: str | None) -> list[FieldError]:
    kinds = [kind for kind in _ORDER if kind in volume]
    if not kinds:
        return [required(path, "must specify a volume type")]
    first, *more = kinds
    source = volume[first]
    errors = [required(f"{path}.{first}.{field}") for field in _REQUIRED.get(first, ()) if not source.get(field)]
    rule = _RULES.get(first)
    if rule is not None:
        errors += rule(source, f"{path}.{first}")
    if first == "ephemeral" and pod and volume.get("name"):
        claim = f"{pod}-{volume['name']}"
        for text in formats.subdomain(claim):
            errors.append(invalid(f"{path}.name", volume["name"], f"PVC name {quoted(claim)}: {text}"))
    return errors + [forbidden(f"{path}.{kind}", "may not specify more than 1 volume type") for kind in more]


def _empty_dir(source: Source, path: str) -> list[FieldError]:
    if str(source.get("sizeLimit", "0")).startswith("-"):
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _nfs(source: Source, path: str) -> list[FieldError]:
    field_path = source.get("path", "")
    return (
        [invalid(f"{path}.path", field_path, "must be an absolute path")]
        if field_path and not field_path.startswith("/")
        else []
    )


def _host_path(source: Source, path: str) -> list[FieldError]:
    if not source.get("path"):
        return [required(f"{path}.path")]
    errors = no_backsteps(source["path"], f"{path}.path")
    if source.get("type", "") not in _HOST_PATH_TYPES:
        errors.append(unsupported(f"{path}.type", source["type"], _HOST_PATH_TYPES))
    return errors


def _mode(source: Source, field: str, path: str) -> list[FieldError]:
    mode = source.get(field)
    return [invalid(f"{path}.{field}", mode, MODE)] if mode is not None and not 0 <= mode <= 0o777 else []


def _items(items: Sequence[Source], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        field_path = f"{path}[{index}]"
        errors += [required(f"{field_path}.{field}") for field in ("key", "path") if not item.get(field)]
        errors += local_path(item.get("path", ""), f"{field_path}.path") + _mode(item, "mode", field_path)
    return errors


def _secret(source: Source, path: str) -> list[FieldError]:
    errors = [] if source.get("secretName") else [required(f"{path}.secretName")]
    return errors + _mode(source, "defaultMode", path) + _items(source.get("items", ()), f"{path}.items")


def _config_map(source: Source, path: str) -> list[FieldError]:
    errors = [] if source.get("name") else [required(f"{path}.name")]
    return errors + _mode(source, "defaultMode", path) + _items(source.get("items", ()), f"{path}.items")


def _file(item: Source, path: str) -> list[FieldError]:
    errors = [] if item.get("path") else [required(f"{path}.path")]
    errors += local_path(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        errors += environment.field_reference(item["fieldRef"], environment.VOLUME_FIELDS, f"{path}.fieldRef")
        if "resourceFieldRef" in item:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid(path, "resource", text))
    elif "resourceFieldRef" in item:
        errors += environment.resource_reference(item["resourceFieldRef"], f"{path}.resourceFieldRef", volume=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + _mode(item, "mode", path)


def _downward(source: Source, path: str) -> list[FieldError]:
    errors = _mode(source, "defaultMode", path)
    for item in source.get("items", ()):
        errors += _file(item, path)
    return errors


def _projected(source: Source, path: str) -> list[FieldError]:
    errors = _mode(source, "defaultMode", path)
    seen: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        field_path = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if kind in projection:
                errors += _projected_keys(projection[kind], f"{field_path}.{kind}", path, seen)
        if "downwardAPI" in projection:
            for item in projection["downwardAPI"].get("items", ()):
                errors += _file(item, f"{field_path}.downwardAPI")
                errors += _unique(item.get("path", ""), item.get("path", ""), path, seen)
        if "serviceAccountToken" in projection:
            errors += _token(projection["serviceAccountToken"], f"{field_path}.serviceAccountToken", path)
        if len(projection) > 1:
            errors.append(forbidden(field_path, "may not specify more than 1 volume type per source"))
    return errors


def _projected_keys(source: Source, field_path: str, path: str, seen: set[str]) -> list[FieldError]:
    errors = [] if source.get("name") else [required(f"{field_path}.name")]
    for index, item in enumerate(source.get("items", ())):
        errors += (
            _items([item], f"{field_path}.items") if index == 0 else _items_at(item, f"{field_path}.items[{index}]")
        )
        errors += _unique(item.get("path", ""), source.get("name", ""), path, seen)
    return errors


def _items_at(item: Source, field_path: str) -> list[FieldError]:
    errors = [required(f"{field_path}.{field}") for field in ("key", "path") if not item.get(field)]
    return errors + local_path(item.get("path", ""), f"{field_path}.path") + _mode(item, "mode", field_path)


def _unique(name: str, shown: str, path: str, seen: set[str]) -> list[FieldError]:
    if name and name in seen:
        return [invalid(path, shown, "conflicting duplicate paths")]
    seen.add(name)
    return []


def _token(source: Source, field_path: str, path: str) -> list[FieldError]:
    seconds = source.get("expirationSeconds", 3600)
    errors = []
    if seconds < 600:
        errors.append(
            invalid(f"{field_path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        )
    if seconds > 1 << 32:
        text = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid(f"{field_path}.expirationSeconds", seconds, text))
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
    else:
        errors += local_path(source["path"], f"{path}.path")
    return errors


def _csi(source: Source, path: str) -> list[FieldError]:
    errors = csi_driver_name(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" in source and not source["nodePublishSecretRef"].get("name"):
        errors.append(required(f"{path}.nodePublishSecretRef.name"))
    return errors


def _ephemeral(source: Source, path: str) -> list[FieldError]:
    if "volumeClaimTemplate" not in source:
        return [required(f"{path}.volumeClaimTemplate")]
    return claim_template(source["volumeClaimTemplate"], f"{path}.volumeClaimTemplate")


_RULES = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "nfs": _nfs,
    "secret": _secret,
    "configMap": _config_map,
    "downwardAPI": _downward,
    "projected": _projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
}
