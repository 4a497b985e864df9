"""Set-ups: which autoscaler launches nodes, and whether HPA and VPA change the pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from dovetail.controllers.settings import Settings
from dovetail.language import message


class NodeAutoscaler(StrEnum):
    """Who launches and removes nodes."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"
    DOVETAIL = "dovetail"


#: What an operator calls each of them.
TITLES = {
    NodeAutoscaler.CLUSTER_AUTOSCALER: "Cluster Autoscaler",
    NodeAutoscaler.KARPENTER: "Karpenter",
    NodeAutoscaler.DOVETAIL: "Dovetail",
}


#: Dovetail plans as it does in production: a scenario takes the quick plan, which depends on the UIDs of equal pods.
DOVETAIL_SETTINGS = {"plan_deadline": Settings().plan_deadline}


class Setup(msgspec.Struct, frozen=True, order=True):
    """One column of a comparison."""

    nodes: NodeAutoscaler
    hpa: bool = False
    vpa: bool = False

    @property
    def name(self) -> str:
        """As in results and options: `karpenter+hpa`."""
        return self.nodes.value + ("+hpa" if self.hpa else "") + ("+vpa" if self.vpa else "")

    @property
    def title(self) -> str:
        return TITLES[self.nodes] + (" + HPA" if self.hpa else "") + (" + VPA" if self.vpa else "")

    @property
    def pods(self) -> tuple[bool, bool]:
        """What changes the pods: set-ups that have it in common can be compared."""
        return self.hpa, self.vpa


class UnknownSetup(ValueError):
    """The name, and what there is."""


def parse(text: str) -> Setup:
    """`karpenter`, `dovetail+hpa`, `cluster-autoscaler+vpa`."""
    name, *parts = text.strip().split("+")
    if name not in set(NodeAutoscaler) or not set(parts) <= {"hpa", "vpa"}:
        raise UnknownSetup(
            message(
                "{text!r} is no set-up; write {NodeAutoscaler}, each with +hpa, +vpa or +hpa+vpa if wanted",
                text=text,
                NodeAutoscaler=", ".join(NodeAutoscaler),
            )
        )
    return Setup(NodeAutoscaler(name), "hpa" in parts, "vpa" in parts)


def all_setups(*, hpa: bool, vpa: bool) -> tuple[Setup, ...]:
    """Every node autoscaler, with and without what the workload has."""
    variants = [(False, False), *([(True, False)] if hpa else []), *([(False, True)] if vpa else [])]
    return tuple(Setup(nodes, *variant) for variant in variants for nodes in NodeAutoscaler)


def by_pods(setups: Iterable[Setup]) -> dict[tuple[bool, bool], list[Setup]]:
    """Set-ups by what changes their pods, in order."""
    groups: dict[tuple[bool, bool], list[Setup]] = {}
    for setup in setups:
        groups.setdefault(setup.pods, []).append(setup)
    return groups


def variant(pods: Sequence[bool]) -> str:
    """`+ HPA`, `+ VPA`, or nothing."""
    return "".join(text for on, text in zip(pods, (" + HPA", " + VPA"), strict=True) if on)
