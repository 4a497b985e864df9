"""A workload: the manifests and the events of a run, independent of the autoscaler that launches the nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from dovetail.cloud.aws import catalog
from dovetail.lab.scenario.manifests import load
from dovetail.lab.scenario.schema import AutoscalerPart, Scenario, ScenarioError
from dovetail.lab.simulated_groups import GroupSpec
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.studies.setups import NodeAutoscaler, Setup

Json = dict[str, Any]

#: Objects that only Karpenter and Dovetail read; Cluster Autoscaler runs on node groups in their place.
NODE_KINDS = ("NodePool", "EC2NodeClass", "NodeOverlay")
_HPA, _VPA = "HorizontalPodAutoscaler", "VerticalPodAutoscaler"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """`title` says in a few words what it is; `groups` are the node groups of the same offer."""

    name: str
    title: str
    scenario: Scenario
    manifests: tuple[Json, ...]
    groups: tuple[GroupSpec, ...]
    folder: Path = Path()
    #: The recording that it was made from: its other nodes come and go as they did.
    recording: Path | None = None

    @property
    def part(self) -> AutoscalerPart:
        return self.scenario.autoscaler or AutoscalerPart()

    @property
    def has_hpa(self) -> bool:
        return any(item.get("kind") == _HPA for item in self.manifests)

    @property
    def has_vpa(self) -> bool:
        return any(item.get("kind") == _VPA for item in self.manifests)

    def node_pools(self) -> list[Json]:
        return [item for item in self.manifests if item.get("kind") == "NodePool"]

    def scenario_for(self, setup: Setup) -> Scenario:
        """The scenario with what a set-up applies."""
        left_out = {*(() if setup.hpa else (_HPA,)), *(() if setup.vpa else (_VPA,))}
        if setup.nodes is NodeAutoscaler.CLUSTER_AUTOSCALER:
            left_out.update(NODE_KINDS)
        kept = tuple(item for item in self.manifests if item.get("kind") not in left_out)
        detail = msgspec.structs.replace(self.scenario.cluster, detail="low", events="warnings")
        return msgspec.structs.replace(self.scenario, manifests=kept, cluster=detail, autoscaler=self.part)

    def types(self) -> Mapping[str, InstanceType]:
        """What the region offers, of the scenario's families."""
        return types_of(self.part.region, self.part.families)

    def fingerprint(self) -> Json:
        """All that a run depends on, as plain values; files that steps apply count by their content."""
        scenario = msgspec.structs.replace(self.scenario, manifests=())
        applied = [load(step.apply, self.folder) for step in scenario.steps if isinstance(step.apply, str)]
        return {
            "scenario": msgspec.to_builtins(scenario, enc_hook=float),
            "manifests": list(self.manifests),
            "applied": applied,
            "groups": msgspec.to_builtins(self.groups),
            **({"recording": _digest(self.recording)} if self.recording is not None else {}),
        }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def types_of(region: str, families: tuple[str, ...]) -> Mapping[str, InstanceType]:
    return {kind.name: kind for kind in catalog.load(region) if not families or kind.name.split(".")[0] in families}


def manifests_of(scenario: Scenario, folder: Path) -> tuple[Json, ...]:
    """The manifests of a scenario as objects."""
    return tuple(item for source in scenario.manifests for item in load(source, folder))


def check_groups(groups: Iterable[GroupSpec], types: Mapping[str, InstanceType], where: str) -> None:
    """Every group's type must be for sale in every zone of it."""
    for group in groups:
        kind = types.get(group.instance_type)
        if kind is None:
            raise ScenarioError(
                message(
                    "{where}: node group {group}: the region has no type {instance_type!r}",
                    where=where,
                    group=group.name,
                    instance_type=group.instance_type,
                )
            )
        zones = {
            offering.zone
            for offering in kind.offerings
            if offering.capacity_type == group.capacity_type and offering.price
        }
        missing = sorted(set(group.zones) - zones)
        if missing:
            raise ScenarioError(
                message(
                    "{where}: node group {group}: {instance_type} has no {capacity_type} price in {missing}; "
                    "there is one in {zones}",
                    where=where,
                    group=group.name,
                    instance_type=group.instance_type,
                    capacity_type=group.capacity_type,
                    missing=", ".join(missing),
                    zones=", ".join(sorted(zones)) or message("no zone"),
                )
            )
