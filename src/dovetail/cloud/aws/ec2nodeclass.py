"""Reading an EC2NodeClass: the family its images are of, what it says about capacity, what a claim of it wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.cloud.aws.capacity import FAMILIES, AmiFamilyCapacity, Disk, KubeletConfig
from dovetail.model.kinds.devices import POD_DEVICES
from dovetail.model.quantity import amount, whole
from dovetail.model.requirements import Requirement, Requirements, requirement

_ALIASES = {name.lower(): name for name in FAMILIES if name != "Custom"}


def family_name(spec: Mapping[str, Any]) -> str:
    """The AMI family: said outright, else by alias, else Custom."""
    if named := spec.get("amiFamily"):
        return str(named)
    for term in spec.get("amiSelectorTerms") or ():
        if alias := term.get("alias"):
            return _ALIASES.get(alias.partition("@")[0].lower(), "Custom")
    return "Custom"


def image_version(node_class: Mapping[str, Any]) -> str:
    """The version in the alias, or in a name of Bottlerocket's own making; empty where neither tells."""
    terms: Sequence[Mapping[str, Any]] = (node_class.get("spec") or {}).get("amiSelectorTerms") or ()
    if alias := next((term["alias"] for term in terms if term.get("alias")), ""):
        return str(alias.partition("@")[2])
    images: Sequence[Mapping[str, Any]] = (node_class.get("status") or {}).get("amis") or ()
    names = (term.get("name") or "" for term in (*terms, *images))
    return next((part for name in names for part in name.split("-") if part[:1] == "v" and "." in part), "")


def family(spec: Mapping[str, Any]) -> AmiFamilyCapacity:
    return FAMILIES.get(family_name(spec), FAMILIES["Custom"])


def kubelet(spec: Mapping[str, Any]) -> KubeletConfig:
    block: Mapping[str, Any] = spec.get("kubelet") or {}
    hard: Mapping[str, str] = block.get("evictionHard") or {}
    return KubeletConfig(
        max_pods=block.get("maxPods"),
        pods_per_core=block.get("podsPerCore") or None,
        kube_reserved=_reserved(block.get("kubeReserved")),
        system_reserved=_reserved(block.get("systemReserved")),
        eviction_memory=_threshold(hard.get("memory.available")),
        eviction_storage=_threshold(hard.get("nodefs.available")),
    )


def _reserved(block: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: amount(name, str(value)) for name, value in (block or {}).items() if name != "pid"}


def _threshold(text: str | None) -> int | float | None:
    if text is None:
        return None
    return float(text.rstrip("%")) if text.endswith("%") else whole(text)


def disk(spec: Mapping[str, Any]) -> Disk:
    """The volume that pods' files live on: the one called root, else the family's own; a size must be said."""
    kind = family(spec)
    entries = spec.get("blockDeviceMappings") or ()
    device = POD_DEVICES.get(kind.name)
    own = [e for e in entries if e.get("deviceName") == device][:1] if device else entries[-1:]
    sizes = [(e.get("ebs") or {}).get("volumeSize") for e in (*[e for e in entries if e.get("rootVolume")][:1], *own)]
    size = next(filter(None, sizes), None)
    return Disk(size=whole(str(size)) if size else None, raid0=spec.get("instanceStorePolicy") == "RAID0")


def wanted(claim: Mapping[str, Any], key: str) -> Requirement | None:
    """What a claim asks of a label; None if it says nothing of it."""
    return of_claim(claim).get(key)


def of_claim(claim: Mapping[str, Any]) -> Requirements:
    """What a NodeClaim asks of its instance."""
    return _requirements((claim.get("spec") or {}).get("requirements") or ())


def of_pool(pool: Mapping[str, Any]) -> Requirements:
    """What a NodePool asks of its instances, and what it labels them with."""
    template: Mapping[str, Any] = pool["spec"]["template"]
    labels = (template.get("metadata") or {}).get("labels") or {}
    return _requirements(template["spec"].get("requirements") or ()).merge(Requirements.of_labels(labels))


def _requirements(entries: Sequence[Mapping[str, Any]]) -> Requirements:
    return Requirements(
        requirement(entry["key"], entry["operator"], entry.get("values") or (), entry.get("minValues"))
        for entry in entries
    )
