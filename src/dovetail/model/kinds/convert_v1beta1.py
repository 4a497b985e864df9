"""v1beta1 to v1 and back, as upstream's webhook did it, annotations included.

These are the plain steps. What they cannot carry is remembered by `convert`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dovetail.language import message
from dovetail.model.kinds.conversion_annotations import copied, copy, put, take
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, KUBELET_ORDER
from dovetail.model.kinds.notes import Notes
from dovetail.model.kinds.schema import Json
from dovetail.model.labels import AWS_GROUP

CLASS_ANNOTATION = "compatibility.karpenter.sh/v1beta1-nodeclass-reference"
UBUNTU_ANNOTATION = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu"
ALIAS_ANNOTATION = "compatibility.karpenter.k8s.aws/v1-alias-version"
MIGRATED_ANNOTATION = "karpenter.sh/stored-version-migrated"

NODE_CLASS = "EC2NodeClass"
ALIASED = {family.lower(): family for family in ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022")}
PLACEHOLDER = [{"id": "ami-placeholder"}]
UBUNTU_ROOT = [
    {
        "deviceName": "/dev/sda1",
        "rootVolume": True,
        "ebs": {"encrypted": True, "volumeSize": "20Gi", "volumeType": "gp3"},
    }
]


def member(obj: Any, *path: str) -> Json:
    """The object at a path, or an empty one that is not attached: nothing below it matters then."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj if isinstance(obj, dict) else {}


def objects(value: Any) -> list[Json]:
    """The objects in a list, if it is one."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def pool_up(beta: Json, notes: Notes) -> Json:
    pool = copied(beta)
    spec = member(pool, "spec")
    disruption = member(spec, "disruption")
    template = member(spec, "template", "spec")
    if "expireAfter" in disruption:
        template["expireAfter"] = disruption.pop("expireAfter")
        notes.moved("spec.disruption.expireAfter", "spec.template.spec.expireAfter")
        if template["expireAfter"] != "Never":
            notes.meaning(
                "spec.template.spec.expireAfter",
                message(
                    "expiry is forceful in v1: an expired node is drained whatever the budgets say; set "
                    "terminationGracePeriod to bound the drain"
                ),
            )
    if disruption.get("consolidationPolicy") == "WhenUnderutilized":
        disruption["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
        disruption.setdefault("consolidateAfter", "0s")
        notes.renamed("spec.disruption.consolidationPolicy", "WhenUnderutilized", "WhenEmptyOrUnderutilized")
    if not disruption and "disruption" in spec:
        del spec["disruption"]
    _reference_up(pool, template, notes, "spec.template.spec")
    _kubelet_up(pool, template, notes, "spec.template.spec")
    return pool


def _reference_up(obj: Json, spec: Json, notes: Notes, where: str) -> None:
    reference = spec.get("nodeClassRef")
    if not isinstance(reference, dict):
        return
    said = {key: reference[key] for key in ("kind", "name", "apiVersion", "group") if reference.get(key)}
    put(obj, CLASS_ANNOTATION, json.dumps(said, separators=(",", ":")))
    version, group = reference.pop("apiVersion", None), reference.pop("group", None)
    if isinstance(version, str) and version:
        group = version.partition("/")[0]
    kind = reference.pop("kind", None) or NODE_CLASS
    spec["nodeClassRef"] = {"group": group or AWS_GROUP, "kind": kind, **reference}
    notes.added(f"{where}.nodeClassRef", message("group and kind, which v1 wants in full"))


def _kubelet_up(obj: Json, spec: Json, notes: Notes, where: str) -> None:
    kubelet = spec.pop("kubelet", None)
    if not isinstance(kubelet, dict):
        take(obj, KUBELET_ANNOTATION)
        return
    ordered = {key: kubelet[key] for key in KUBELET_ORDER if key in kubelet}
    rest = {key: value for key, value in kubelet.items() if key not in ordered}
    put(obj, KUBELET_ANNOTATION, json.dumps({**ordered, **rest}, separators=(",", ":")))
    notes.meaning(
        f"{where}.kubelet",
        message(
            "kubelet settings are the node class's in v1; they are kept in an annotation that still "
            "works here, but write them to the EC2NodeClass's spec.kubelet"
        ),
    )


def pool_down(pool: Json) -> Json:
    beta = copied(pool)
    spec = member(beta, "spec")
    template = member(spec, "template", "spec")
    disruption = member(spec, "disruption")
    if disruption.get("consolidationPolicy") == "WhenEmptyOrUnderutilized":
        disruption["consolidationPolicy"] = "WhenUnderutilized"
        if disruption.get("consolidateAfter") != "Never":
            disruption.pop("consolidateAfter", None)
    if "expireAfter" in template:
        disruption["expireAfter"] = template.pop("expireAfter")
        spec["disruption"] = disruption
    template.pop("terminationGracePeriod", None)
    for budget in objects(disruption.get("budgets")):
        budget.pop("reasons", None)
    spec.pop("replicas", None)
    _reference_down(beta, template)
    _kubelet_down(beta, template)
    take(beta, MIGRATED_ANNOTATION)
    status = member(beta, "status")
    for field in ("nodes", "nodeClassObservedGeneration"):
        status.pop(field, None)
    return beta


def _reference_down(obj: Json, spec: Json) -> None:
    text = take(obj, CLASS_ANNOTATION)
    reference = spec.get("nodeClassRef")
    if not isinstance(reference, dict):
        return
    group = reference.pop("group", None)
    kept = _object(text)
    if kept and kept.get("name") == reference.get("name"):
        spec["nodeClassRef"] = kept
    elif group and group != AWS_GROUP:
        reference["apiVersion"] = f"{group}/v1beta1"


def _kubelet_down(obj: Json, spec: Json) -> None:
    kubelet = _object(take(obj, KUBELET_ANNOTATION))
    if kubelet is not None:
        spec["kubelet"] = kubelet


def _object(text: str | None) -> Json | None:
    try:
        stored = json.loads(text) if text else None
    except ValueError:
        return None
    return stored if isinstance(stored, dict) else None


def claim_up(beta: Json, notes: Notes) -> Json:
    claim = copied(beta)
    spec = member(claim, "spec")
    _reference_up(claim, spec, notes, "spec")
    _kubelet_up(claim, spec, notes, "spec")
    spec.setdefault("expireAfter", "Never")  # it went by its pool's, which is not at hand
    return claim


def claim_down(claim: Json) -> Json:
    beta = copied(claim)
    spec = member(beta, "spec")
    for field in ("expireAfter", "terminationGracePeriod"):
        spec.pop(field, None)
    member(beta, "status").pop("lastPodEventTime", None)
    _reference_down(beta, spec)
    _kubelet_down(beta, spec)
    take(beta, MIGRATED_ANNOTATION)
    return beta


def class_up(beta: Json, notes: Notes) -> Json:
    node_class = copied(beta)
    version = take(node_class, ALIAS_ANNOTATION) or "latest"
    spec = member(node_class, "spec")
    family = spec.get("amiFamily")
    if family == "Ubuntu":
        _ubuntu_up(node_class, spec, notes)
    elif isinstance(family, str) and family.lower() in ALIASED and not spec.get("amiSelectorTerms"):
        del spec["amiFamily"]
        spec["amiSelectorTerms"] = [{"alias": f"{family.lower()}@{version}"}]
        notes.added(
            "spec.amiSelectorTerms",
            message(
                "alias {family}@{version}, which takes the place of amiFamily", family=family.lower(), version=version
            ),
        )
    options = spec.get("metadataOptions")
    if isinstance(options, dict):
        options.setdefault("httpPutResponseHopLimit", 2)
    elif "spec" in node_class:
        notes.meaning(
            "spec.metadataOptions",
            message(
                "the metadata service's hop limit is 1 where nothing is said, and was 2 before 1.0: pods "
                "that use the node's credentials need httpPutResponseHopLimit: 2"
            ),
        )
    return node_class


def _ubuntu_up(node_class: Json, spec: Json, notes: Notes) -> None:
    marks = ["amiFamily"]
    spec["amiFamily"] = "AL2"
    if not spec.get("blockDeviceMappings"):
        marks.append("blockDeviceMappings")
        spec["blockDeviceMappings"] = copy(UBUNTU_ROOT)
    if not spec.get("amiSelectorTerms"):
        marks.append("incompatible")
        spec["amiSelectorTerms"] = copy(PLACEHOLDER)
        notes.meaning(
            "spec.amiSelectorTerms", message("v1 finds no Ubuntu images by itself: say which with amiSelectorTerms")
        )
    put(node_class, UBUNTU_ANNOTATION, ",".join(marks))
    notes.meaning("spec.amiFamily", message("the Ubuntu family is gone in v1; its images boot as AL2"))


def class_down(node_class: Json) -> Json:
    beta = copied(node_class)
    spec = member(beta, "spec")
    marks = (take(beta, UBUNTU_ANNOTATION) or "").split(",")
    aliases = [term["alias"] for term in objects(spec.get("amiSelectorTerms")) if isinstance(term.get("alias"), str)]
    if marks != [""]:
        spec["amiFamily"] = "Ubuntu"
        if "incompatible" in marks:
            spec.pop("amiSelectorTerms", None)
        if "blockDeviceMappings" in marks:
            spec.pop("blockDeviceMappings", None)
    elif aliases:
        _alias_down(beta, spec, aliases[0])
    for term in objects(spec.get("amiSelectorTerms")):
        term.pop("ssmParameter", None)
    for field in V1_FIELDS:
        spec.pop(field, None)
    for device in objects(spec.get("blockDeviceMappings")):
        member(device, "ebs").pop("volumeInitializationRate", None)
    take(beta, MIGRATED_ANNOTATION)
    member(beta, "status").pop("capacityReservations", None)
    return beta


V1_FIELDS = (
    "capacityReservationSelectorTerms",
    "placementGroupSelector",
    "ipPrefixCount",
    "kubelet",
    "networkInterfaces",
    "connectionTracking",
    "cpuOptions",
)


def _alias_down(beta: Json, spec: Json, alias: str) -> None:
    family, _, version = alias.partition("@")
    spec.setdefault("amiFamily", ALIASED.get(family, "Custom"))
    kept = [term for term in spec["amiSelectorTerms"] if not (isinstance(term, dict) and "alias" in term)]
    if kept:
        spec["amiSelectorTerms"] = kept
    else:
        del spec["amiSelectorTerms"]
    if version and version != "latest":
        put(beta, ALIAS_ANNOTATION, version)
