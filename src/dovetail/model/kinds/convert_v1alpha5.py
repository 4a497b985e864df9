"""The first generation to v1beta1 and back: Provisioner, Machine, AWSNodeTemplate.

From v1beta1 `beta` goes on to v1. A Provisioner meant more than it said: its webhook filled in Linux, amd64,
on-demand and the c, m and r categories, so the conversion does.
"""

from __future__ import annotations

import re
from typing import Any

from dovetail.language import message
from dovetail.model.kinds.conversion_annotations import DOMAIN, copied, copy, put, take
from dovetail.model.kinds.convert_v1beta1 import NODE_CLASS, member, objects
from dovetail.model.kinds.notes import Notes
from dovetail.model.kinds.schema import Json
from dovetail.model.kinds.selector_maps import images_down, images_up, terms_down, terms_up
from dovetail.model.labels import ARCH, AWS_GROUP, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, OS, PROVISIONER_NAME

LAUNCH_TEMPLATE_ANNOTATION = f"{DOMAIN}/launch-template"
INSTANCE_KEYS = frozenset(
    {
        INSTANCE_TYPE,
        "beta.kubernetes.io/instance-type",
        f"{AWS_GROUP}/instance-family",
        f"{AWS_GROUP}/instance-category",
        f"{AWS_GROUP}/instance-generation",
    }
)
ASSUMED = (
    (OS, "In", ["linux"]),
    (ARCH, "In", ["amd64"]),
    (CAPACITY_TYPE, "In", ["on-demand"]),
)
ASSUMED_TYPES = (
    (f"{AWS_GROUP}/instance-category", "In", ["c", "m", "r"]),
    (f"{AWS_GROUP}/instance-generation", "Gt", ["2"]),
)
_OLD_KEYS = {"beta.kubernetes.io/os": OS, "beta.kubernetes.io/arch": ARCH}
_SECONDS = re.compile(r"([0-9]+)([smh])")


def assumed(requirements: list[Json], labels: Json) -> list[Json]:
    """The requirements that the first generation's webhook would have added."""
    named = [*(requirement.get("key") for requirement in requirements), *labels]
    keys = {_OLD_KEYS.get(key, key) for key in named if isinstance(key, str)}
    missing = [row for row in ASSUMED if row[0] not in keys]
    if not keys & INSTANCE_KEYS:
        missing.extend(ASSUMED_TYPES)
    return [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in missing]


def provisioner_up(alpha: Json, notes: Notes) -> Json:
    spec = member(alpha, "spec")
    pool: Json = {key: copy(value) for key, value in alpha.items() if key not in ("spec", "status")}
    name = member(alpha, "metadata").get("name")
    labels = {**member(spec, "labels"), **({PROVISIONER_NAME: name} if name else {})}
    template: Json = {"metadata": {"labels": copy(labels)}}
    if spec.get("annotations"):
        template["metadata"]["annotations"] = copy(spec["annotations"])
    template["spec"] = _machine_spec(spec, notes)
    kubelet = copy(spec.get("kubeletConfiguration"))
    if isinstance(kubelet, dict):
        if kubelet.pop("containerRuntime", None):
            notes.meaning(
                "spec.kubeletConfiguration.containerRuntime", message("dropped: containerd is the only runtime left")
            )
        template["spec"]["kubelet"] = kubelet
    template["spec"]["nodeClassRef"] = {"name": _class_name(spec, name)}
    pool["spec"] = {"template": template, "disruption": _disruption(spec, notes)}
    resources = member(spec, "limits").get("resources")
    if resources is not None:
        pool["spec"]["limits"] = copy(resources)
        notes.moved("spec.limits.resources", "spec.limits")
    if "weight" in spec:
        pool["spec"]["weight"] = spec["weight"]
    status = member(alpha, "status")
    if "resources" in status:
        pool["status"] = {"resources": copy(status["resources"])}
    return pool


def _machine_spec(spec: Json, notes: Notes) -> Json:
    requirements = objects(spec.get("requirements"))
    added = assumed(requirements, member(spec, "labels"))
    if added:
        keys = ", ".join(requirement["key"] for requirement in added)
        notes.added("spec.requirements", message("what the first generation's webhook assumed: {keys}", keys=keys))
    template: Json = {"requirements": [*copy(requirements), *added]}
    for field in ("taints", "startupTaints"):
        if field in spec:
            template[field] = copy(spec[field])
    return template


def _class_name(spec: Json, name: Any) -> str:
    """The node class of a provisioner: the one it refers to, or the one made from its inline settings."""
    reference = member(spec, "providerRef").get("name")
    return str(reference or name or "")


def _disruption(spec: Json, notes: Notes) -> Json:
    expiry = spec.get("ttlSecondsUntilExpired")
    empty = spec.get("ttlSecondsAfterEmpty")
    disruption: Json = {"expireAfter": f"{expiry}s" if isinstance(expiry, int) else "Never"}
    if member(spec, "consolidation").get("enabled") is True:
        disruption["consolidationPolicy"] = "WhenUnderutilized"
    elif isinstance(empty, int):
        disruption.update(consolidationPolicy="WhenEmpty", consolidateAfter=f"{empty}s")
        notes.moved("spec.ttlSecondsAfterEmpty", "spec.disruption.consolidateAfter")
    else:
        disruption.update(consolidationPolicy="WhenEmpty", consolidateAfter="Never")
        notes.added("spec.disruption.consolidateAfter", message("Never: nothing said that nodes may be terminated"))
    notes.meaning(
        "spec.disruption.budgets", message("v1 disrupts at most 10% of a pool at once where budgets say nothing else")
    )
    return disruption


def provisioner_down(pool: Json) -> Json:
    spec, template = member(pool, "spec"), member(pool, "spec", "template")
    inner, disruption = member(template, "spec"), member(spec, "disruption")
    alpha: Json = {key: copy(value) for key, value in pool.items() if key not in ("spec", "status")}
    said: Json = {}
    for field, value in member(template, "metadata").items():
        if field in ("labels", "annotations") and isinstance(value, dict):
            kept = {key: label for key, label in value.items() if key != PROVISIONER_NAME}
            if kept:
                said[field] = copy(kept)
    for field in ("requirements", "taints", "startupTaints"):
        if field in inner:
            said[field] = copy(inner[field])
    _forget_assumed(said)
    if isinstance(inner.get("kubelet"), dict):
        said["kubeletConfiguration"] = copy(inner["kubelet"])
    reference = member(inner, "nodeClassRef")
    if reference.get("name"):
        said["providerRef"] = {"name": reference["name"]}
    _ways_out(said, disruption)
    if isinstance(spec.get("limits"), dict):
        said["limits"] = {"resources": copy(spec["limits"])}
    if "weight" in spec:
        said["weight"] = spec["weight"]
    alpha["spec"] = said
    resources = member(pool, "status").get("resources")
    if resources is not None:
        alpha["status"] = {"resources": copy(resources)}
    return alpha


def _forget_assumed(said: Json) -> None:
    """Leave out at the end of the list what the webhook would add again."""
    requirements = said.get("requirements")
    if not isinstance(requirements, list):
        return
    for count in range(len(requirements) + 1):
        if requirements[count:] == assumed(objects(requirements[:count]), member(said, "labels")):
            said["requirements"] = requirements[:count]
            break
    if not said["requirements"]:
        del said["requirements"]


def _ways_out(said: Json, disruption: Json) -> None:
    expiry = _seconds(disruption.get("expireAfter"))
    if expiry is not None:
        said["ttlSecondsUntilExpired"] = expiry
    if disruption.get("consolidationPolicy") == "WhenUnderutilized":
        if disruption.get("consolidateAfter") != "Never":
            said["consolidation"] = {"enabled": True}
    elif (after := _seconds(disruption.get("consolidateAfter"))) is not None:
        said["ttlSecondsAfterEmpty"] = after


def _seconds(text: Any) -> int | None:
    if not isinstance(text, str) or not re.fullmatch(r"([0-9]+[smh])+", text):
        return None
    return sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in _SECONDS.findall(text))


def template_up(alpha: Json, notes: Notes) -> Json:
    """An AWSNodeTemplate, or the inline block of a Provisioner dressed as one, as a v1beta1 EC2NodeClass."""
    template: Json = {key: copy(value) for key, value in alpha.items() if key != "spec"}
    old = member(alpha, "spec")
    spec: Json = {field: copy(old[field]) for field in _SAME if field in old}
    for field, target in (
        ("subnetSelector", "subnetSelectorTerms"),
        ("securityGroupSelector", "securityGroupSelectorTerms"),
    ):
        if isinstance(old.get(field), dict):
            spec[target] = terms_up(old[field])
            notes.moved(f"spec.{field}", f"spec.{target}")
    if isinstance(old.get("amiSelector"), dict):
        spec["amiSelectorTerms"] = images_up(old["amiSelector"])
        notes.moved("spec.amiSelector", "spec.amiSelectorTerms")
    spec["amiFamily"] = old.get("amiFamily") or "AL2"
    hops = member(old, "metadataOptions")
    spec["metadataOptions"] = {**_METADATA, **hops}
    launch_template = old.get("launchTemplate")
    if isinstance(launch_template, str):
        put(template, LAUNCH_TEMPLATE_ANNOTATION, launch_template)
        notes.meaning(
            "spec.launchTemplate", message("v1 makes launch templates itself; yours is used, by an annotation")
        )
    if "instanceProfile" not in old and not launch_template:
        notes.meaning("spec.role", message("v1 has no default instance profile: say role or instanceProfile"))
    template["spec"] = spec
    return template


_SAME = (
    "blockDeviceMappings",
    "context",
    "detailedMonitoring",
    "instanceProfile",
    "tags",
    "userData",
)
_METADATA = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 2,
    "httpTokens": "required",
}


def template_down(template: Json) -> Json:
    alpha: Json = {key: copy(value) for key, value in template.items() if key != "spec"}
    spec = member(template, "spec")
    old: Json = {field: copy(spec[field]) for field in _SAME if field in spec}
    if "subnetSelectorTerms" in spec:
        old["subnetSelector"] = terms_down(objects(spec["subnetSelectorTerms"]))
    if "securityGroupSelectorTerms" in spec:
        old["securityGroupSelector"] = terms_down(objects(spec["securityGroupSelectorTerms"]))
    if spec.get("amiSelectorTerms"):
        old["amiSelector"] = images_down(objects(spec["amiSelectorTerms"]))
    if spec.get("amiFamily") not in (None, "AL2"):
        old["amiFamily"] = spec["amiFamily"]
    if "metadataOptions" in spec and spec["metadataOptions"] != _METADATA:
        old["metadataOptions"] = copy(spec["metadataOptions"])
    launch_template = take(alpha, LAUNCH_TEMPLATE_ANNOTATION)
    if launch_template is not None:
        old["launchTemplate"] = launch_template
    alpha["spec"] = old
    return alpha


def machine_up(alpha: Json, notes: Notes) -> Json:
    claim = copied(alpha)
    spec, labels = member(claim, "spec"), member(claim, "metadata", "labels")
    if PROVISIONER_NAME in labels:
        labels[NODEPOOL] = labels.pop(PROVISIONER_NAME)
    reference = spec.pop("machineTemplateRef", None)
    name = reference.get("name") if isinstance(reference, dict) else None
    spec["nodeClassRef"] = {"apiVersion": f"{AWS_GROUP}/v1beta1", "kind": NODE_CLASS, "name": name or ""}
    kubelet = member(spec, "kubelet")
    kubelet.pop("containerRuntime", None)
    for condition in objects(member(claim, "status").get("conditions")):
        kind = condition.get("type")
        if isinstance(kind, str) and kind.startswith("Machine") and kind != "Machine":
            condition["type"] = kind.removeprefix("Machine")
        condition.pop("severity", None)
    if "spec" in claim:
        claim["spec"] = spec
    return claim


def machine_down(claim: Json) -> Json:
    alpha = copied(claim)
    spec, labels = member(alpha, "spec"), member(alpha, "metadata", "labels")
    if NODEPOOL in labels:
        labels[PROVISIONER_NAME] = labels.pop(NODEPOOL)
    reference = spec.pop("nodeClassRef", None)
    if isinstance(reference, dict) and reference.get("name"):
        spec["machineTemplateRef"] = {"name": reference["name"]}
    member(alpha, "status").pop("imageID", None)
    for condition in objects(member(alpha, "status").get("conditions")):
        if condition.get("type") not in (None, "Ready") and isinstance(condition["type"], str):
            condition["type"] = "Machine" + condition["type"]
    return alpha
