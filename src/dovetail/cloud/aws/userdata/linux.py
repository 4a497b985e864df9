"""Amazon Linux: a MIME archive with the user's parts first and our part last."""

from __future__ import annotations

import email
import email.message
from collections.abc import Mapping
from typing import Any

import yaml

from dovetail.cloud.aws.userdata.boot import Boot, taint_text

BOUNDARY = "//"
SHELL = 'text/x-shellscript; charset="us-ascii"'
NODE_CONFIG = "application/node.eks.aws"

#: kubelet field -> flag of the old bootstrap script.
_FLAGS = {
    "maxPods": "max-pods",
    "podsPerCore": "pods-per-core",
    "systemReserved": "system-reserved",
    "kubeReserved": "kube-reserved",
    "evictionHard": "eviction-hard",
    "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period",
    "evictionMaxPodGracePeriod": "eviction-max-pod-grace-period",
    "imageGCHighThresholdPercent": "image-gc-high-threshold",
    "imageGCLowThresholdPercent": "image-gc-low-threshold",
    "cpuCFSQuota": "cpu-cfs-quota",
}


def al2(boot: Boot) -> str:
    parts = [*_user_parts(boot.custom, yaml_is_config=False), (SHELL, _bootstrap(boot))]
    return _archive(parts)


def al2023(boot: Boot) -> str:
    parts = [*_user_parts(boot.custom, yaml_is_config=True), (NODE_CONFIG, _node_config(boot))]
    return _archive(parts)


def _archive(parts: list[tuple[str, str]]) -> str:
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"', ""]
    for kind, body in parts:
        lines += [f"--{BOUNDARY}", f"Content-Type: {kind}", "", body.replace("\r\n", "\n").rstrip("\n"), ""]
    lines.append(f"--{BOUNDARY}--")
    return "\n".join(lines) + "\n"


def _user_parts(custom: str | None, *, yaml_is_config: bool) -> list[tuple[str, str]]:
    """The user's own parts: a MIME archive as it stands, a NodeConfig, or a plain script."""
    if not custom or not custom.strip():
        return []
    if custom.lstrip().lower().startswith(("mime-version:", "content-type:")):
        message = email.message_from_string(custom)
        payload = message.get_payload()
        if isinstance(payload, list):
            archived = (part for part in payload if isinstance(part, email.message.Message))
            return [(_kind(part), str(part.get_payload())) for part in archived]
        return [(_kind(message), str(payload))]
    if yaml_is_config and _is_node_config(custom):
        return [(NODE_CONFIG, custom)]
    return [(SHELL, custom)]


def _kind(part: email.message.Message[str, str]) -> str:
    return part.get("Content-Type", SHELL)


def _is_node_config(text: str) -> bool:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return isinstance(found, dict) and found.get("kind") == "NodeConfig"


def _bootstrap(boot: Boot) -> str:
    arguments = [
        f"/etc/eks/bootstrap.sh '{boot.cluster_name}'",
        f"--apiserver-endpoint '{boot.endpoint}'",
        f"--b64-cluster-ca '{boot.ca_bundle}'",
    ]
    if boot.ipv6:
        arguments.append("--ip-family ipv6")
    if dns := boot.dns():
        arguments.append(f"--dns-cluster-ip '{dns}'")
    kubelet = dict(boot.kubelet)
    if boot.max_pods is not None:
        kubelet["maxPods"] = boot.max_pods
    if kubelet.get("maxPods") is not None:
        arguments.append("--use-max-pods false")
    arguments.append(f"--kubelet-extra-args '{' '.join(kubelet_flags(boot, kubelet))}'")
    if boot.raid0:
        arguments.append("--local-disks raid0")
    command = " \\\n".join(arguments)
    log = "exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1"
    return f"#!/bin/bash -xe\n{log}\n{command}"


def kubelet_flags(boot: Boot, kubelet: Mapping[str, Any]) -> list[str]:
    flags = []
    if labels := boot.node_labels():
        flags.append('--node-labels="' + ",".join(f"{key}={value}" for key, value in labels.items()) + '"')
    flags.append('--register-with-taints="' + ",".join(taint_text(taint) for taint in boot.all_taints()) + '"')
    for field, flag in _FLAGS.items():
        value = kubelet.get(field)
        if value is None:
            continue
        if isinstance(value, Mapping):
            joint = "<" if field.startswith("eviction") and field != "evictionSoftGracePeriod" else "="
            flags.append(f'--{flag}="' + ",".join(f"{k}{joint}{value[k]}" for k in sorted(value)) + '"')
        else:
            flags.append(f"--{flag}={str(value).lower() if isinstance(value, bool) else value}")
    return flags


def _node_config(boot: Boot) -> str:
    kubelet: dict[str, Any] = dict(boot.kubelet)
    if boot.max_pods is not None:
        kubelet["maxPods"] = boot.max_pods
    if dns := boot.dns():
        kubelet["clusterDNS"] = list(boot.kubelet.get("clusterDNS") or [dns])
    kubelet["registerWithTaints"] = [dict(taint) for taint in boot.all_taints()]
    spec: dict[str, Any] = {
        "cluster": {
            "name": boot.cluster_name,
            "apiServerEndpoint": boot.endpoint,
            "certificateAuthority": boot.ca_bundle,
            "cidr": boot.service_cidr,
        },
        "kubelet": {"config": kubelet},
    }
    if labels := boot.node_labels():
        text = ",".join(f"{key}={value}" for key, value in labels.items())
        spec["kubelet"]["flags"] = [f"--node-labels={text}"]
    if boot.raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return "# Written by dovetail: how this machine joins its cluster.\n" + yaml.safe_dump(document, sort_keys=True)
