"""The verifier checks every constraint of a plan. It is slow and simple, and shares no code with the packer.

It builds the cluster that the plan requires from the objects themselves and binds the pods one after another by the
rules of kube-scheduler (`dovetail.model.fit`). A plan is valid if some order binds every pod to its planned node.
Limits, reservations, minValues and the other offerings of each node are checked as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import isclose

import msgspec
from msgspec.structs import replace

from dovetail.model.fit.podinfo import PodInfo, SelectorFacts, pod_info
from dovetail.model.fit.terms import AffinityTerm
from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.model.pods import Pod
from dovetail.model.reasons import REASONS
from dovetail.model.requirements import Requirements
from dovetail.planner.plan import OfferingOption, Plan, PlannedNode
from dovetail.planner.snapshot import MinValues, PoolRequirement, Snapshot
from dovetail.planner.verify.bind_order import unbindable
from dovetail.planner.verify.cluster import ATTACHED, PlannedCluster, PoolOfferings, available, key_of
from dovetail.planner.verify.labels import may_choose_label
from dovetail.planner.verify.offerings import PlannedOfferingsCache

#: Tolerance of prices in $/h.
_PRICE_TOLERANCE = 1e-6


class Violation(msgspec.Struct, frozen=True):
    """A violated requirement: the rule, the object, and what is wrong."""

    rule: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.detail}"


def verify(plan: Plan, snapshot: Snapshot) -> list[Violation]:
    """The violations of a plan; empty if it is valid."""
    pods = _pods(plan, snapshot)
    violations = [*_placements(plan, pods), *_names(plan, snapshot)]
    if violations:
        return violations
    violations += _offerings(plan, snapshot)
    if violations:
        return violations
    targets = {placement.node for placement in plan.placements.values() if placement.node is not None}
    infos = {key: pod_info(pod) for key, pod in pods.items() if plan.placements[key].unschedulable is None}
    stays = _without_moved(snapshot, plan)
    if not _depends_on_other_nodes(infos.values(), stays):
        stays = replace(stays, nodes=tuple(state for state in stays.nodes if state.name in targets))
    planned_cluster = PlannedCluster(stays, plan.nodes, pods.values(), targets)
    offerings_cache = PlannedOfferingsCache(planned_cluster)
    violations += _cost(plan, snapshot)
    violations += _limits(plan, snapshot, offerings_cache)
    violations += _reservations(plan, snapshot, offerings_cache)
    violations += _min_values(plan, snapshot)
    violations += _claims(plan, infos, planned_cluster, offerings_cache)
    violations += [Violation("fit", key, why) for key, why in unbindable(plan, infos, planned_cluster).items()]
    violations += _alternatives(plan, infos, planned_cluster, offerings_cache)
    violations += _admitted(plan, infos, planned_cluster, offerings_cache)
    return violations


def _pods(plan: Plan, snapshot: Snapshot) -> dict[str, Pod]:
    """The pods that the plan must place: pending ones, and those of removed nodes that will be recreated."""
    pods = {key_of(pod): pod for pod in snapshot.pending}
    removed = set(plan.remove)
    for state in snapshot.nodes:
        for pod in state.pods if state.name in removed else ():
            if key_of(pod) in plan.placements or _is_recreated(pod):
                pods.setdefault(key_of(pod), pod)
    return pods


def _is_recreated(pod: Pod) -> bool:
    owner = pod.metadata.controller
    stays = owner is not None and owner.kind in ("DaemonSet", "Node")
    return not (stays or pod.finished or pod.terminating)


def _without_moved(snapshot: Snapshot, plan: Plan) -> Snapshot:
    removed = set(plan.remove)
    return replace(snapshot, nodes=tuple(state for state in snapshot.nodes if state.name not in removed))


def _depends_on_other_nodes(infos: Iterable[PodInfo], snapshot: Snapshot) -> bool:
    """Whether what runs on nodes that get no pod can matter: to spreads, pod affinities, claims, or anti-affinities."""
    if snapshot.default_spread:
        return True
    shapes = {id(info.shape): info.shape for info in infos}.values()
    if any(shape.spread or shape.affinity or shape.anti_affinity or shape.volumes for shape in shapes):
        return True
    return any(pod.spec.affinity is not None for state in snapshot.nodes for pod in state.pods)


def _placements(plan: Plan, pods: dict[str, Pod]) -> list[Violation]:
    """Every pod is placed exactly once, or has a reason; placements and the pods of planned nodes agree."""
    violations = [Violation("placed", key, "is not in the plan") for key in pods if key not in plan.placements]
    violations += [Violation("placed", key, "is not a pod to be placed") for key in plan.placements if key not in pods]
    holds = {pod: planned.name for planned in plan.nodes for pod in planned.pods}
    for key, place in plan.placements.items():
        ways = (place.node is not None) + (place.new_node is not None) + (place.unschedulable is not None)
        if ways != 1:
            violations.append(Violation("placed", key, f"has {ways} answers"))
        if place.unschedulable is not None and place.unschedulable.code not in REASONS:
            violations.append(Violation("placed", key, f"has no node for no reason: {place.unschedulable.code}"))
        if place.new_node != holds.get(key):
            violations.append(Violation("placed", key, f"is on {place.new_node} and listed on {holds.get(key)}"))
    doubles = Counter(pod for planned in plan.nodes for pod in planned.pods)
    violations += [Violation("placed", pod, f"is on {count} new nodes") for pod, count in doubles.items() if count > 1]
    return violations


def _names(plan: Plan, snapshot: Snapshot) -> list[Violation]:
    """Names of planned nodes are unique, removed nodes may be removed, and moves agree with placements."""
    states = {state.name: state for state in snapshot.nodes}
    count = Counter(planned.name for planned in plan.nodes)
    violations = [Violation("named", name, "is the name of several") for name, many in count.items() if many > 1]
    violations += [Violation("named", name, "is the name of an existing node") for name in count if name in states]
    for name in plan.remove:
        if name not in states or states[name].deleting or not states[name].movable:
            violations.append(Violation("removed", name, "is not a node that may be removed"))
    for pod, move in plan.moves.items():
        place = plan.placements.get(pod)
        if (
            place is None
            or (place.node, place.new_node) != (move.node, move.new_node)
            or move.source not in plan.remove
        ):
            violations.append(Violation("moved", pod, "is not where its move says"))
    if plan.evictions != len(plan.moves):
        violations.append(Violation("moved", "all", f"{plan.evictions} evictions, {len(plan.moves)} moves"))
    return violations


def _cost(plan: Plan, snapshot: Snapshot) -> list[Violation]:
    """The cost is the sum of the planned nodes (less the removed ones), and not below the lower bound."""
    cost, removed = plan.cost, set(plan.remove)
    total = sum(planned.price for planned in plan.nodes)
    if cost.before is not None:
        total += cost.before - sum(state.price or 0.0 for state in snapshot.nodes if state.name in removed)
    violations = []
    if not isclose(cost.per_hour, total, rel_tol=_PRICE_TOLERANCE, abs_tol=_PRICE_TOLERANCE):
        violations.append(Violation("cost", "plan", f"{cost.per_hour} an hour, not {total}"))
    if cost.lower_bound is not None and cost.lower_bound > cost.per_hour + _PRICE_TOLERANCE:
        violations.append(Violation("cost", "plan", f"its bound is {cost.lower_bound}, and it costs {cost.per_hour}"))
    return violations


def _offerings(plan: Plan, snapshot: Snapshot) -> list[Violation]:
    """The offerings of a planned node exist, are available, may be launched by its pool, and are cheapest first."""
    pools_offerings = {pool.name: PoolOfferings(pool) for pool in snapshot.pools}
    good: set[tuple[str, int]] = set()
    lists: set[tuple[str, int]] = set()
    violations: list[Violation] = []
    for planned in plan.nodes:
        if (planned.pool, id(planned.offerings)) in lists:
            continue
        if not planned.offerings:
            violations.append(Violation("offering", planned.name, "has none"))
        prices = [choice.price if choice.price is not None else float("inf") for choice in planned.offerings]
        if prices != sorted(prices):
            violations.append(Violation("offering", planned.name, "are not cheapest first"))
        for choice in planned.offerings:
            if (planned.pool, id(choice)) in good:
                continue
            offered = pools_offerings[planned.pool].find(choice) if planned.pool in pools_offerings else None
            if offered is None or offered[1].price != choice.price:
                violations.append(Violation("offering", planned.name, f"{_offering_text(choice)} is not offered"))
            elif not available(snapshot, *offered) or not pools_offerings[planned.pool].may_launch(*offered):
                violations.append(Violation("offering", planned.name, f"{_offering_text(choice)} cannot be had"))
            else:
                good.add((planned.pool, id(choice)))
        if not violations:
            lists.add((planned.pool, id(planned.offerings)))
    return violations or [
        violation for planned in plan.nodes for violation in _chosen_labels(planned, pools_offerings[planned.pool])
    ]


def _chosen_labels(planned: PlannedNode, pool_offerings: PoolOfferings) -> Iterator[Violation]:
    """Labels that a plan chooses for a node are open in each of its offerings."""
    for label, value in planned.labels.items():
        for offered in map(pool_offerings.find, planned.offerings):
            if offered is None or not may_choose_label(pool_offerings.pool, *offered, label, value):
                yield Violation("label", planned.name, f"{label} cannot be {value}")
                break


def _offering_text(choice: OfferingOption) -> str:
    return f"{choice.instance_type}/{choice.zone}/{choice.capacity_type}"


def _limits(plan: Plan, snapshot: Snapshot, offerings_cache: PlannedOfferingsCache) -> list[Violation]:
    """Whichever offerings are launched, no pool goes over its limits."""
    violations = []
    removed = set(plan.remove)
    for pool in snapshot.pools:
        mine = [planned for planned in plan.nodes if planned.pool == pool.name]
        for name, limit in pool.limits.items() if mine else ():
            total = sum(
                1 if name == "nodes" else state.capacity.get(name, 0)
                for state in snapshot.nodes
                if state.pool == pool.name and not state.deleting and state.name not in removed
            )
            total += sum(1 if name == "nodes" else offerings_cache.of(planned).largest(name) for planned in mine)
            if total > limit:
                violations.append(Violation("limit", pool.name, f"{name} {total} > {limit}"))
    return violations


def _reservations(plan: Plan, snapshot: Snapshot, offerings_cache: PlannedOfferingsCache) -> list[Violation]:
    room: dict[str, int] = {}
    for pool in snapshot.pools:
        for kind in pool.types:
            for offering in kind.offerings:
                if offering.reservation_id and offering.reservation_capacity is not None:
                    before = room.get(offering.reservation_id, offering.reservation_capacity)
                    room[offering.reservation_id] = min(before, offering.reservation_capacity)
    taken: Counter[str] = Counter()
    for planned in plan.nodes if room else ():
        taken.update(filter(None, offerings_cache.of(planned).facts("reservation_id")))
    return [
        Violation("reservation", name, f"{count} new nodes > {room[name]}")
        for name, count in taken.items()
        if name in room and count > room[name]
    ]


def _min_values(plan: Plan, snapshot: Snapshot) -> list[Violation]:
    if snapshot.min_values is not MinValues.STRICT:
        return []
    pools = {pool.name: pool for pool in snapshot.pools}
    violations = []
    for planned in plan.nodes:
        pool = pools[planned.pool]
        needs = [need for need in pool.requirements if need.min_values]
        types = {kind.name: kind for kind in pool.types} if needs else {}
        for need in needs:
            values: set[str] = set()
            for choice in planned.offerings:
                fixed = {ZONE: choice.zone, CAPACITY_TYPE: choice.capacity_type, INSTANCE_TYPE: choice.instance_type}
                own = types[choice.instance_type].labels.get(need.key, ())
                values.update([fixed[need.key]] if need.key in fixed else own)
            if len(values) < (need.min_values or 0):
                violations.append(
                    Violation("minValues", planned.name, f"{need.key}: {len(values)} < {need.min_values}")
                )
    return violations


def _claims(
    plan: Plan, infos: dict[str, PodInfo], planned_cluster: PlannedCluster, offerings_cache: PlannedOfferingsCache
) -> list[Violation]:
    """The requests of a NodeClaim are the sum over its pods and DaemonSets; its requirements admit every offering."""
    violations = []
    described: dict[tuple[int, int], list[str]] = {}
    for planned in plan.nodes:
        kind, alternative = planned_cluster.alternative(planned, planned.choice)
        total = planned_cluster.needs(infos[key] for key in planned.pods)
        for name in {*total, *planned.requests, *kind.allocatable}:
            requested = total[name] + kind.allocatable.get(name, 0) - planned_cluster.room(kind, alternative, name)
            said = planned.requests.get(name, 0)
            if said != requested and not name.startswith(ATTACHED):
                violations.append(Violation("requests", planned.name, f"{name} {said}, not {requested}"))
        planned_offerings = offerings_cache.of(planned)
        mark = (id(planned_offerings), id(planned.requirements))
        if mark not in described:
            needs = msgspec.convert(planned.requirements, tuple[PoolRequirement, ...])
            described[mark] = [need.key for need in needs if not planned_offerings.admitted(need)]
        violations += [
            Violation("requirements", planned.name, f"{key} leaves offerings out") for key in described[mark]
        ]
    return violations


def _alternatives(
    plan: Plan,
    infos_by_pod: dict[str, PodInfo],
    planned_cluster: PlannedCluster,
    offerings_cache: PlannedOfferingsCache,
) -> list[Violation]:
    """Every other offering of a node holds its pods as well."""
    violations: list[Violation] = []
    for planned in plan.nodes:
        all_of_them = [infos_by_pod[key] for key in planned.pods]
        infos = {id(info.shape): info for info in all_of_them}
        keys = {key for info in infos.values() for key in _topology_keys(info)}
        need = planned_cluster.needs(all_of_them)
        first = planned_cluster.cluster.nodes[planned.name].labels
        if offerings_cache.of(planned).holds(infos.values(), {key: first.get(key) for key in keys}, need):
            continue
        keys.difference_update(_keys_free_to_change(planned, infos.values(), planned_cluster))
        checked: set[object] = set()
        for choice in planned.offerings[1:]:
            violations += _alternative(planned, choice, infos, keys, planned_cluster, need, checked)
    return violations


def _admitted(
    plan: Plan,
    infos_by_pod: dict[str, PodInfo],
    planned_cluster: PlannedCluster,
    offerings_cache: PlannedOfferingsCache,
) -> list[Violation]:
    """A NodeClaim admits no offering that does not hold its pods, unless its pool has minValues."""
    violations: list[Violation] = []
    more: dict[tuple[int, int], list[OfferingOption]] = {}
    for planned in plan.nodes:
        if any(need.min_values for need in planned_cluster.pools[planned.pool].requirements):
            continue
        planned_offerings = offerings_cache.of(planned)
        mark = (id(planned_offerings), id(planned.requirements))
        if mark not in more:
            requirements = Requirements.of_entries(msgspec.convert(planned.requirements, tuple[PoolRequirement, ...]))
            admitted_by = planned_cluster.pools_offerings[planned.pool].admitted_by(
                requirements, planned_cluster.snapshot
            )
            more[mark] = [choice for choice in admitted_by if choice not in planned_offerings.listed]
        infos = {id(infos_by_pod[key].shape): infos_by_pod[key] for key in planned.pods} if more[mark] else {}
        need = planned_cluster.needs(infos_by_pod[key] for key in planned.pods) if more[mark] else Counter[str]()
        for choice in more[mark]:
            why = _alternative(planned, choice, infos, set(), planned_cluster, need, set())
            violations += [replace(violation, rule="requirements") for violation in why]
    return violations


def _topology_keys(info: PodInfo) -> list[str]:
    shape = info.shape
    keys = [term.topology_key for term in shape.spread]
    keys += [term.topology_key for term in (*shape.affinity, *shape.anti_affinity)]
    return [key for key in keys if key != HOSTNAME]


def _keys_free_to_change(planned: PlannedNode, infos: Iterable[PodInfo], planned_cluster: PlannedCluster) -> set[str]:
    """The topology keys whose value may change: all targets of the pods' affinities are on the node itself."""
    others = [held for name, held in planned_cluster.cluster.nodes.items() if name != planned.name]
    elsewhere = {kind for held in others for kind in held.kinds}
    free: set[str] = set()
    bound: set[str] = set()
    for info in infos:
        terms = info.shape.affinity
        parted = any(all(_selects(term, kind, planned_cluster) for term in terms) for kind in elsewhere)
        (bound if parted else free).update(term.topology_key for term in terms)
        bound.update(term.topology_key for term in info.shape.spread)
        bound.update(term.topology_key for term in info.shape.anti_affinity)
    return free - bound


def _selects(term: AffinityTerm, kind: SelectorFacts, planned_cluster: PlannedCluster) -> bool:
    return term.selects(kind.namespace, kind.labels, planned_cluster.cluster.namespaces.get(kind.namespace, {}))


def _alternative(
    planned: PlannedNode,
    choice: OfferingOption,
    infos: dict[int, PodInfo],
    keys: set[str],
    planned_cluster: PlannedCluster,
    need: Counter[str],
    checked: set[object],
) -> list[Violation]:
    kind, alternative = planned_cluster.alternative(planned, choice)
    labels, first = alternative.metadata.labels, planned_cluster.cluster.nodes[planned.name].labels
    moved = [key for key in keys if labels.get(key) != first.get(key)]
    if moved:
        return [Violation("topology", planned.name, f"{_offering_text(choice)} would change {moved[0]}")]
    for info in infos.values():
        if not planned_cluster.suits(info, alternative):
            return [Violation("fit", planned.name, f"{_offering_text(choice)} does not match {info.pod.metadata.key}")]
    if kind.name in checked:
        return []
    checked.add(kind.name)
    short = [name for name, amount in need.items() if amount > planned_cluster.room(kind, alternative, name)]
    return [Violation("fit", planned.name, f"{_offering_text(choice)} has too little {short[0]}")] if short else []
