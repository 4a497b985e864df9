"""Defaults of a pod spec, wherever it stands: in a pod or in a template.

`spec_defaults` is what any pod spec gets; `pod_defaults` adds what only a pod itself gets (requests from limits, host
ports from container ports), which a template must not show.
"""

from __future__ import annotations

import re
from typing import Any

from dovetail.model.quantity import parse

Spec = dict[str, Any]
_ISCSI = {"iscsiInterface": "default"}
_RBD = {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}
_AZURE = {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"}
_SCALEIO = {"fsType": "xfs", "storageMode": "ThinProvisioned"}
_VOLUMES: dict[str, dict[str, Any]] = {
    "secret": {"defaultMode": 420},
    "configMap": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "hostPath": {"type": ""},
    "iscsi": _ISCSI,
    "rbd": _RBD,
    "azureDisk": _AZURE,
    "scaleIO": _SCALEIO,
}


_REFERENCE = re.compile(r"(?:[A-Za-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::[\w.-]+)?(?:@[\w:+.-]+)?")


def fill(target: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name not in target:
            target[name] = value


def spec_defaults(spec: Spec) -> None:
    fill(
        spec,
        {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
        },
    )
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for volume in spec.get("volumes") or ():
        volume_defaults(volume)
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            container_defaults(container)
    if "overhead" in spec:
        round_up(spec["overhead"])


def volume_defaults(volume: dict[str, Any]) -> None:
    if len(volume) == 1 or not any(name != "name" for name in volume):
        volume["emptyDir"] = {}
        return
    for kind, values in _VOLUMES.items():
        if kind in volume:
            fill(volume[kind], values)
    if "downwardAPI" in volume:
        _field_refs(volume["downwardAPI"].get("items", ()))
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "downwardAPI" in source:
            _field_refs(source["downwardAPI"].get("items", ()))
        if "serviceAccountToken" in source:
            fill(source["serviceAccountToken"], {"expirationSeconds": 3600})
    if "ephemeral" in volume and "volumeClaimTemplate" in volume["ephemeral"]:
        claim_defaults(volume["ephemeral"]["volumeClaimTemplate"].setdefault("spec", {}))
    if "image" in volume and "pullPolicy" not in volume["image"]:
        volume["image"]["pullPolicy"] = pull_policy(volume["image"].get("reference", ""))


def claim_defaults(spec: Spec) -> None:
    """A PersistentVolumeClaim's spec."""
    spec.setdefault("volumeMode", "Filesystem")
    for amounts in spec.get("resources", {}).values():
        round_up(amounts)


def _field_refs(items: Any) -> None:
    for item in items:
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def pull_policy(image: str) -> str:
    """Always for the latest image, named or not."""
    if not _REFERENCE.fullmatch(image):
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        tag = ""
    return "Always" if tag == "latest" or (not tag and not digest) else "IfNotPresent"


def container_defaults(container: dict[str, Any]) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = variable.get("valueFrom")
        if reference and "fieldRef" in reference:
            reference["fieldRef"].setdefault("apiVersion", "v1")
        if reference and "fileKeyRef" in reference:
            reference["fileKeyRef"].setdefault("optional", False)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            probe_defaults(container[name])
    for handler in container.get("lifecycle", {}).values():
        if isinstance(handler, dict) and "httpGet" in handler:
            fill(handler["httpGet"], {"path": "/", "scheme": "HTTP"})
    for amounts in container.get("resources", {}).values():
        if isinstance(amounts, dict):
            round_up(amounts)


def probe_defaults(probe: dict[str, Any]) -> None:
    fill(probe, {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    if "httpGet" in probe:
        fill(probe["httpGet"], {"path": "/", "scheme": "HTTP"})
    if "grpc" in probe and probe["grpc"].get("service") is None:
        probe["grpc"]["service"] = ""


def round_up(amounts: dict[str, str]) -> None:
    """Nothing finer than a thousandth."""
    for name, text in amounts.items():
        if text.endswith(("n", "u")):
            quantity = parse(text)
            amounts[name] = str(parse(f"{quantity.milli}m"))


def pod_defaults(spec: Spec) -> None:
    """What a pod gets beyond its spec's defaults."""
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or ():
            resources = container.get("resources")
            if resources and "limits" in resources:
                requests = resources.setdefault("requests", {})
                for name, amount in resources["limits"].items():
                    requests.setdefault(name, amount)
    if spec.get("resources", {}).get("limits"):
        _pod_level_requests(spec)
    if spec.get("hostNetwork"):
        for group in ("containers", "initContainers"):
            for container in spec.get(group) or ():
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port["containerPort"])


def _pod_level_requests(spec: Spec) -> None:
    requests: dict[str, str] = spec["resources"].get("requests", {})
    total: dict[str, Any] = {}
    for container in spec.get("containers") or ():
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            quantity = parse(amount)
            total[name] = total[name] + quantity if name in total else quantity
    for name, quantity in total.items():
        if name not in requests and name in ("cpu", "memory"):
            requests[name] = str(quantity)
    for name, amount in spec["resources"]["limits"].items():
        if name not in requests and (name in ("cpu", "memory") or name.startswith("hugepages-")):
            requests[name] = amount
    if requests:
        spec["resources"]["requests"] = requests


def template_defaults(template: dict[str, Any]) -> None:
    """A pod template: spec defaults only."""
    spec_defaults(template.setdefault("spec", {}))
