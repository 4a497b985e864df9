"""A node class that is well-formed and still will not do what was wanted: settings that its family does not heed."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.language import message
from dovetail.model import duration
from dovetail.model.kinds import EC2NodeClass
from dovetail.model.kinds.admission import Path
from dovetail.model.kinds.devices import POD_DEVICES
from dovetail.model.kinds.kubelet import Kubelet
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.subject import LintSubject

_KUBELET: Path = ("spec", "kubelet")


def classes(subject: LintSubject) -> Iterator[LintFinding]:
    """What is wrong with a class as a whole."""
    node_class = subject.node_class()
    if node_class is None:
        return
    yield from _devices(subject, node_class)
    if node_class.spec.kubelet is not None:
        yield from _periods(subject, node_class.spec.kubelet)
        yield from _ignored_kubelet_fields(subject, node_class.spec.kubelet, node_class.family)


def _devices(subject: LintSubject, node_class: EC2NodeClass) -> Iterator[LintFinding]:
    """Disks of which none is the one that pods write to: it stays as small as the image has it."""
    named = [mapping.device_name for mapping in node_class.spec.block_device_mappings]
    device = POD_DEVICES.get(node_class.family)
    rooted = any(mapping.root_volume for mapping in node_class.spec.block_device_mappings)
    if not named or device is None or device in named or rooted:
        return
    text = message(
        "none of these disks is the one that pods of {family} write to, {device}",
        family=node_class.family,
        device=device,
    )
    hint = message("add one with deviceName: {device}, or mark yours rootVolume: true", device=device)
    yield subject.finding("DV208", ("spec", "blockDeviceMappings"), text, hint=hint, key=True)


def _periods(subject: LintSubject, kubelet: Kubelet) -> Iterator[LintFinding]:
    for signal, text in (kubelet.eviction_soft_grace_period or {}).items():
        try:
            duration.parse(text)
        except duration.DurationError:
            path = (*_KUBELET, "evictionSoftGracePeriod", signal)
            yield subject.finding(
                "DV107", path, message('"{text}" is no duration', text=text), hint=message("such as 90s or 1m30s")
            )


def _ignored_kubelet_fields(subject: LintSubject, kubelet: Kubelet, family: str) -> Iterator[LintFinding]:
    if family == "Bottlerocket" and kubelet.pods_per_core:
        text = message("Bottlerocket does not heed podsPerCore")
        yield subject.finding("DV208", (*_KUBELET, "podsPerCore"), text, hint="say maxPods", key=True)
    if family not in ("AL2023", "Custom") and len(kubelet.cluster_dns or ()) > 1:
        text = message("{family} takes the first of these addresses only", family=family)
        yield subject.finding("DV208", (*_KUBELET, "clusterDNS"), text, hint=message("keep one"), key=True)
