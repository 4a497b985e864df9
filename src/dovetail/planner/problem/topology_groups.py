"""Topology groups: a selector of pods in some namespaces, and a topology key.

Pods *own* a group if it is their spread or (anti-)affinity, and are *members* if it selects them. Owners are placed by
the counts of members; members must not violate the constraints of owners. Equal constraints are one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from dovetail.planner.problem.pod_spec import AffinityRule, PodConstraints, SpreadConstraint
from dovetail.planner.requirements import NEVER, Term, all_hold
from dovetail.planner.snapshot import Snapshot

SPREAD, AFFINITY, ANTI = "spread", "affinity", "anti"


class TopologyGroup(msgspec.Struct, frozen=True, cache_hash=True):
    """`namespaces` None means all. `terms` and `tolerations` narrow the nodes a spread counts (its policies)."""

    kind: str
    key: str
    selector: Term
    namespaces: frozenset[str] | None
    max_skew: int = 0
    min_domains: int = 0
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[tuple[str, str, str, str], ...] | None = None

    def counts(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is a member."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return NEVER not in self.selector and all_hold(self.selector, labels)


def spread_group(shape: PodConstraints, spread: SpreadConstraint) -> TopologyGroup:
    return TopologyGroup(
        SPREAD,
        spread.key,
        spread.selector,
        frozenset((shape.namespace,)),
        spread.max_skew,
        spread.min_domains,
        shape.required if spread.honor_affinity else None,
        shape.tolerated if spread.honor_taints else None,
    )


def affinity_group(near: AffinityRule, kind: str, namespaces: Mapping[str, Mapping[str, str]]) -> TopologyGroup:
    """The group of a pod (anti-)affinity term; a namespace selector is resolved to names, an empty one to all."""
    chosen: frozenset[str] | None = frozenset(near.namespaces)
    if near.namespace_selector is not None:
        if not near.namespace_selector:
            chosen = None
        else:
            selected = {name for name, labels in namespaces.items() if all_hold(near.namespace_selector, labels)}
            chosen = frozenset({*near.namespaces, *selected})
    return TopologyGroup(kind, near.key, near.selector, chosen)


def affinity_groups(terms: Iterable[AffinityRule], namespaces: Mapping[str, Mapping[str, str]]) -> list[TopologyGroup]:
    """The groups of a pod's required affinities. The scheduler counts only pods that all of its terms select."""
    near_groups = [affinity_group(term, AFFINITY, namespaces) for term in terms]
    if len({(group.selector, group.namespaces) for group in near_groups}) < 2:
        return near_groups
    selector = tuple(sorted({clause for group in near_groups for clause in group.selector}))
    named = [group.namespaces for group in near_groups if group.namespaces is not None]
    common = frozenset.intersection(*named) if named else None
    return [replace(group, selector=selector, namespaces=common) for group in near_groups]


def known_namespaces(snapshot: Snapshot, shapes: list[PodConstraints]) -> dict[str, dict[str, str]]:
    """The namespaces of all pods with their labels, including the name label."""
    names = {shape.namespace for shape in shapes} | set(snapshot.namespaces)
    return {name: {**snapshot.namespaces.get(name, {}), "kubernetes.io/metadata.name": name} for name in sorted(names)}
