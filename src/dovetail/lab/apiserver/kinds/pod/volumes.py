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


def descending_path(path: str, at: str) -> list[FieldError]:
    found = [invalid(at, path, "must be a relative path")] if path.startswith("/") else []
    return found + no_backsteps(path, at)


def local_path(path: str, at: str) -> list[FieldError]:
    found = descending_path(path, at)
    if path.startswith("..") and not path.startswith("../"):
        found.append(invalid(at, path, "must not start with '..'"))
    return found


def check(volumes: Sequence[Source], path: str, pod: str | None) -> tuple[dict[str, Source], list[FieldError]]:
    """The usable volumes by name, and the complaints; `pod` is the pod's name, None in a template."""
    found: list[FieldError] = []
    usable: dict[str, Source] = {}
    made = {f"{pod}-{volume.get('name', '')}" for volume in volumes if pod and "ephemeral" in volume}
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        own = _source(volume, at, pod)
        if not name:
            own.append(required(f"{at}.name"))
        else:
            own += [invalid(f"{at}.name", name, text) for text in formats.label(name)]
        if name in usable:
            own.append(duplicate(f"{at}.name", name))
        if not own:
            usable[name] = volume
        found += own
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claim in made:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(invalid(f"{at}.persistentVolumeClaim.claimName", claim, text))
    return usable, found


def _source(volume: Source, path: str, pod: str | None) -> list[FieldError]:
    kinds = [kind for kind in _ORDER if kind in volume]
    if not kinds:
        return [required(path, "must specify a volume type")]
    first, *more = kinds
    source = volume[first]
    found = [required(f"{path}.{first}.{field}") for field in _REQUIRED.get(first, ()) if not source.get(field)]
    rule = _RULES.get(first)
    if rule is not None:
        found += rule(source, f"{path}.{first}")
    if first == "ephemeral" and pod and volume.get("name"):
        claim = f"{pod}-{volume['name']}"
        for text in formats.subdomain(claim):
            found.append(invalid(f"{path}.name", volume["name"], f"PVC name {quoted(claim)}: {text}"))
    return found + [forbidden(f"{path}.{kind}", "may not specify more than 1 volume type") for kind in more]


def _empty_dir(source: Source, path: str) -> list[FieldError]:
    if str(source.get("sizeLimit", "0")).startswith("-"):
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _nfs(source: Source, path: str) -> list[FieldError]:
    at = source.get("path", "")
    return [invalid(f"{path}.path", at, "must be an absolute path")] if at and not at.startswith("/") else []


def _host_path(source: Source, path: str) -> list[FieldError]:
    if not source.get("path"):
        return [required(f"{path}.path")]
    found = no_backsteps(source["path"], f"{path}.path")
    if source.get("type", "") not in _HOST_PATH_TYPES:
        found.append(unsupported(f"{path}.type", source["type"], _HOST_PATH_TYPES))
    return found


def _mode(source: Source, field: str, path: str) -> list[FieldError]:
    mode = source.get(field)
    return [invalid(f"{path}.{field}", mode, MODE)] if mode is not None and not 0 <= mode <= 0o777 else []


def _items(items: Sequence[Source], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, item in enumerate(items):
        at = f"{path}[{index}]"
        found += [required(f"{at}.{field}") for field in ("key", "path") if not item.get(field)]
        found += local_path(item.get("path", ""), f"{at}.path") + _mode(item, "mode", at)
    return found


def _secret(source: Source, path: str) -> list[FieldError]:
    found = [] if source.get("secretName") else [required(f"{path}.secretName")]
    return found + _mode(source, "defaultMode", path) + _items(source.get("items", ()), f"{path}.items")


def _config_map(source: Source, path: str) -> list[FieldError]:
    found = [] if source.get("name") else [required(f"{path}.name")]
    return found + _mode(source, "defaultMode", path) + _items(source.get("items", ()), f"{path}.items")


def _file(item: Source, path: str) -> list[FieldError]:
    found = [] if item.get("path") else [required(f"{path}.path")]
    found += local_path(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        found += environment.field_reference(item["fieldRef"], environment.VOLUME_FIELDS, f"{path}.fieldRef")
        if "resourceFieldRef" in item:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            found.append(invalid(path, "resource", text))
    elif "resourceFieldRef" in item:
        found += environment.resource_reference(item["resourceFieldRef"], f"{path}.resourceFieldRef", volume=True)
    else:
        found.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return found + _mode(item, "mode", path)


def _downward(source: Source, path: str) -> list[FieldError]:
    found = _mode(source, "defaultMode", path)
    for item in source.get("items", ()):
        found += _file(item, path)
    return found


def _projected(source: Source, path: str) -> list[FieldError]:
    found = _mode(source, "defaultMode", path)
    seen: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if kind in projection:
                found += _projected_keys(projection[kind], f"{at}.{kind}", path, seen)
        if "downwardAPI" in projection:
            for item in projection["downwardAPI"].get("items", ()):
                found += _file(item, f"{at}.downwardAPI")
                found += _unique(item.get("path", ""), item.get("path", ""), path, seen)
        if "serviceAccountToken" in projection:
            found += _token(projection["serviceAccountToken"], f"{at}.serviceAccountToken", path)
        if len(projection) > 1:
            found.append(forbidden(at, "may not specify more than 1 volume type per source"))
    return found


def _projected_keys(source: Source, at: str, path: str, seen: set[str]) -> list[FieldError]:
    found = [] if source.get("name") else [required(f"{at}.name")]
    for index, item in enumerate(source.get("items", ())):
        found += _items([item], f"{at}.items") if index == 0 else _items_at(item, f"{at}.items[{index}]")
        found += _unique(item.get("path", ""), source.get("name", ""), path, seen)
    return found


def _items_at(item: Source, at: str) -> list[FieldError]:
    found = [required(f"{at}.{field}") for field in ("key", "path") if not item.get(field)]
    return found + local_path(item.get("path", ""), f"{at}.path") + _mode(item, "mode", at)


def _unique(name: str, shown: str, path: str, seen: set[str]) -> list[FieldError]:
    if name and name in seen:
        return [invalid(path, shown, "conflicting duplicate paths")]
    seen.add(name)
    return []


def _token(source: Source, at: str, path: str) -> list[FieldError]:
    seconds = source.get("expirationSeconds", 3600)
    found = []
    if seconds < 600:
        found.append(invalid(f"{at}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        text = "may not specify a duration larger than 2^32 seconds"
        found.append(invalid(f"{at}.expirationSeconds", seconds, text))
    if not source.get("path"):
        found.append(required(f"{path}.path"))
    else:
        found += local_path(source["path"], f"{path}.path")
    return found


def _csi(source: Source, path: str) -> list[FieldError]:
    found = csi_driver_name(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" in source and not source["nodePublishSecretRef"].get("name"):
        found.append(required(f"{path}.nodePublishSecretRef.name"))
    return found


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
