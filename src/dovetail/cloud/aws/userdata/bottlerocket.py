"""Bottlerocket: settings in TOML, merged into the user's own.

The standard library reads TOML and does not write it; what Bottlerocket's settings need of the
language (tables, strings, numbers, booleans, lists) is little, and is written here.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from dovetail.cloud.aws.userdata.boot import BadUserData, Boot

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")
_PLAIN = {
    "evictionMaxPodGracePeriod": "eviction-max-pod-grace-period",
    "imageGCHighThresholdPercent": "image-gc-high-threshold-percent",
    "imageGCLowThresholdPercent": "image-gc-low-threshold-percent",
    "cpuCFSQuota": "cpu-cfs-quota-enforced",
}
_MAPS = {
    "kubeReserved": "kube-reserved",
    "systemReserved": "system-reserved",
    "evictionHard": "eviction-hard",
    "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period",
}


def settings(boot: Boot) -> str:
    try:
        tree: dict[str, Any] = tomllib.loads(boot.custom or "")
    except tomllib.TOMLDecodeError as error:
        raise BadUserData(f"spec.userData: not TOML ({error}); Bottlerocket reads TOML settings") from error
    own = tree.setdefault("settings", {})
    kubernetes = own.setdefault("kubernetes", {})
    kubernetes |= {
        "cluster-name": boot.cluster_name,
        "api-server": boot.endpoint,
        "cluster-certificate": boot.ca_bundle,
    }
    kubernetes["node-labels"] = kubernetes.get("node-labels", {}) | boot.node_labels()
    taints: dict[str, list[str]] = {}  # the pool's alone: pods are planned by them
    for taint in boot.all_taints():
        taints.setdefault(taint["key"], []).append(f"{taint.get('value', '')}:{taint['effect']}")
    kubernetes["node-taints"] = taints
    if boot.max_pods is not None:
        kubernetes["max-pods"] = boot.max_pods
    if dns := boot.dns():
        kubernetes["cluster-dns-ip"] = dns
    for field, name in _PLAIN.items():
        if (value := boot.kubelet.get(field)) is not None:
            kubernetes[name] = str(value) if field.startswith("imageGC") else value
    for field, name in _MAPS.items():
        if value := boot.kubelet.get(field):
            kubernetes[name] = {key: str(amount) for key, amount in value.items()}
    if boot.raid0:
        own.setdefault("bootstrap-commands", {})["000-mount-instance-storage"] = {
            "commands": [["apiclient", "ephemeral-storage", "init"], _bind(boot.image_version)],
            "essential": True,
            "mode": "always",
        }
    return dump(tree)


def _bind(version: str) -> list[str]:
    """The command that puts pods' files on the instance's own disks; before 1.46 it must be given which."""
    command = ["apiclient", "ephemeral-storage", "bind"]
    release = re.match(r"v?(\d+)\.(\d+)\.", version)
    if version == "latest" or (release and (int(release[1]), int(release[2])) >= (1, 46)):
        return command
    return [*command, "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]


def dump(tree: Mapping[str, Any]) -> str:
    return "\n".join(_table(tree, ())).lstrip("\n") + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = []
    if path and (plain or not table):
        lines += ["", "[" + ".".join(_key(part) for part in path) + "]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _table(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if _BARE.match(key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(str(value), ensure_ascii=False)
