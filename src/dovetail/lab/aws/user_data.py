"""What an instance makes of its user data: which cluster it would join, under which labels and taints.

The lab reads user data as the images' own bootstrap programs would, no matter its author: an instance whose
user data names another cluster, or none, runs and never joins.
"""

from __future__ import annotations

import base64
import binascii
import email
import email.message
import itertools
import re
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from dovetail.model import yaml_document

_LABELS = re.compile(r"--node-labels[= ]\"?([^\"'\s]+)")
_TAINTS = re.compile(r"--register-with-taints[= ]\"?([^\"'\s]+)")
_MAX_PODS = re.compile(r"--max-pods[= ]\"?(\d+)")
_WINDOWS = re.compile(r'-EKSClusterName "([^"]+)".*?-APIServerEndpoint "([^"]+)"', re.S)

Taint = Mapping[str, str]


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster an instance would join."""

    cluster: str
    endpoint: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None


def read(user_data: str | bytes | None) -> Intent | None:
    """The intent in user data (base64 or plain); None where nothing in it joins a cluster."""
    text = _text(user_data)
    if not text.strip():
        return None
    if "<powershell>" in text:
        return _powershell(text)
    if text.lstrip().lower().startswith(("mime-version:", "content-type:")):
        return _archive(text)
    if "/etc/eks/bootstrap.sh" in text:
        return _bootstrap(text)
    return _settings(text) or _node_config([text])


def _text(user_data: str | bytes | None) -> str:
    if not user_data:
        return ""
    raw = user_data.encode() if isinstance(user_data, str) else user_data
    try:
        return base64.b64decode(raw, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return raw.decode(errors="replace")


def _archive(text: str) -> Intent | None:
    message = email.message_from_string(text)
    payload = message.get_payload()
    parts = payload if isinstance(payload, list) else [message]
    bodies = [(p.get_content_type(), str(p.get_payload())) for p in parts if isinstance(p, email.message.Message)]
    configs = [body for kind, body in bodies if kind == "application/node.eks.aws"]
    if configs:
        return _node_config(configs)
    for _, body in bodies:
        if "/etc/eks/bootstrap.sh" in body:
            return _bootstrap(body)
    return None


def _node_config(documents: list[str]) -> Intent | None:
    """Later documents win, as nodeadm merges them."""
    spec: dict[str, Any] = {}
    for document in documents:
        try:
            part = yaml_document.load(document)
        except yaml.YAMLError:
            return None
        if isinstance(part, dict) and part.get("kind") == "NodeConfig":
            spec = _merge(spec, part.get("spec") or {})
    name = (spec.get("cluster") or {}).get("name")
    if not name:
        return None
    kubelet = spec.get("kubelet") or {}
    config = kubelet.get("config") or {}
    flags = " ".join(kubelet.get("flags") or ())
    return Intent(
        cluster=name,
        endpoint=spec["cluster"].get("apiServerEndpoint", ""),
        labels=_labels(flags),
        taints=tuple(config.get("registerWithTaints") or ()) or _taints(flags),
        max_pods=config.get("maxPods"),
    )


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        existing = merged.get(key)
        merged[key] = _merge(existing, value) if isinstance(existing, dict) and isinstance(value, dict) else value
    return merged


def _bootstrap(text: str) -> Intent | None:
    line = text.replace("\\\n", " ").split("/etc/eks/bootstrap.sh", 1)[1].split("\n", 1)[0]
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if not words or words[0].startswith("-"):
        return None
    options = dict(itertools.pairwise(words))
    extra = options.get("--kubelet-extra-args", "")
    return Intent(
        cluster=words[0],
        endpoint=options.get("--apiserver-endpoint", ""),
        labels=_labels(extra),
        taints=_taints(extra),
        max_pods=int(match.group(1)) if (match := _MAX_PODS.search(extra)) else None,
    )


def _settings(text: str) -> Intent | None:
    try:
        kubernetes = tomllib.loads(text).get("settings", {}).get("kubernetes", {})
    except tomllib.TOMLDecodeError:
        return None
    if not kubernetes.get("cluster-name"):
        return None
    taints = []
    for key, values in (kubernetes.get("node-taints") or {}).items():
        for value in values if isinstance(values, list) else [values]:
            taint, _, effect = value.rpartition(":")
            taints.append({"key": key, "value": taint, "effect": effect})
    return Intent(
        cluster=kubernetes["cluster-name"],
        endpoint=kubernetes.get("api-server", ""),
        labels=kubernetes.get("node-labels") or {},
        taints=tuple(taints),
        max_pods=kubernetes.get("max-pods"),
    )


def _powershell(text: str) -> Intent | None:
    match = _WINDOWS.search(text)
    if not match:
        return None
    return Intent(cluster=match[1], endpoint=match[2], labels=_labels(text), taints=_taints(text))


def _labels(flags: str) -> dict[str, str]:
    match = _LABELS.search(flags)
    pairs = (pair.partition("=") for pair in match[1].split(",")) if match else ()
    return {key: value for key, _, value in pairs}


def _taints(flags: str) -> tuple[Taint, ...]:
    match = _TAINTS.search(flags)
    made = []
    for text in match[1].split(",") if match else ():
        head, _, effect = text.rpartition(":")
        key, _, value = head.partition("=")
        made.append({"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect})
    return tuple(made)
