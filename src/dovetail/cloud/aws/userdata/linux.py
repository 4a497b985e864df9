"""Amazon Linux: a MIME archive with the user's parts first and our part last."""

from __future__ import annotations

import email
import email.message
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import yaml

from dovetail.cloud.aws.userdata.boot import Boot, taint_text
from dovetail.model import yaml_document

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
    parts = [*_user_parts(boot.custom, yaml_is_config=False), MimePart(SHELL, _bootstrap(boot))]
    return _archive(parts)


def al2023(boot: Boot) -> str:
    parts = [*_user_parts(boot.custom, yaml_is_config=True), MimePart(NODE_CONFIG, _node_config(boot))]
    return _archive(parts)


class MimePart(NamedTuple):
    """A part of the archive; one with an `encoding` is written as it is."""

    kind: str
    body: str
    encoding: str = ""


def _archive(parts: list[MimePart]) -> str:
    boundary = _boundary(part.body for part in parts)
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for part in parts:
        lines += [f"--{boundary}", f"Content-Type: {part.kind}"]
        if part.encoding:
            lines.append(f"Content-Transfer-Encoding: {part.encoding}")
        lines += ["", part.body.replace("\r\n", "\n").rstrip("\n"), ""]
    lines.append(f"--{boundary}--")
    return "\n".join(lines) + "\n"


def _boundary(bodies: Iterable[str]) -> str:
    """One that no line of any part begins with."""
    taken = [line for body in bodies for line in body.splitlines() if line.startswith(f"--{BOUNDARY}")]
    boundary = BOUNDARY
    while any(line.startswith(f"--{boundary}") for line in taken):
        boundary += "="
    return boundary


def _user_parts(custom: str | None, *, yaml_is_config: bool) -> list[MimePart]:
    """The user's own parts: those of a MIME archive, a NodeConfig, or a plain script."""
    if not custom or not custom.strip():
        return []
    if custom.lstrip().lower().startswith(("mime-version:", "content-type:")):
        message = email.message_from_string(custom)
        return [_decoded(part) for part in message.walk() if not part.is_multipart()]
    if yaml_is_config and _is_node_config(custom):
        return [MimePart(NODE_CONFIG, custom)]
    return [MimePart(SHELL, custom)]


def _decoded(part: email.message.Message[str, str]) -> MimePart:
    """A part as text: what was encoded for the mail is decoded; what is no text stays encoded, and says so."""
    kind, encoding = part.get("Content-Type", SHELL), part.get("Content-Transfer-Encoding", "").strip().lower()
    body = str(part.get_payload())
    if encoding not in ("base64", "quoted-printable"):
        return MimePart(kind, body)
    raw = part.get_payload(decode=True)
    try:
        return MimePart(kind, bytes(raw if isinstance(raw, bytes) else b"").decode(part.get_content_charset("utf-8")))
    except (LookupError, UnicodeDecodeError):
        return MimePart(kind, body, encoding)


def _is_node_config(text: str) -> bool:
    try:
        document = yaml_document.load(text)
    except yaml.YAMLError:
        return False
    return isinstance(document, dict) and document.get("kind") == "NodeConfig"


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
    return "# Written by dovetail: how this instance joins its cluster.\n" + yaml.safe_dump(document, sort_keys=True)
