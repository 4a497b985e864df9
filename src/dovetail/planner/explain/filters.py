"""Filters: each requirement of a pod on an offering, as text and as the mask of offerings that pass.

They explain why a pod has no node, and why a cheaper offering was not chosen. The first filters depend on the offering
alone; the later ones (topology rules, limits, reservations) depend on the packing state that the plan ends with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from dovetail.language import message, plural
from dovetail.model.labels import HOSTNAME, WELL_KNOWN
from dovetail.model.pods import Pod
from dovetail.model.quantity import format_resources
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated
from dovetail.planner.offerings.alternatives import capacity_at_most
from dovetail.planner.offerings.catalog import OfferingCatalog
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.topology_rules import allow_member, allow_owner
from dovetail.planner.plan import Exclusion
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.problem.pod_spec import DISK, shape_of
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import EVERYWHERE, PORT
from dovetail.planner.problem.shared_volumes import ATTACH, driver_of
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD, TopologyGroup
from dovetail.planner.requirements import NEVER, NODE_NAME, Clause, Term, text
from dovetail.planner.snapshot import Pool

#: Alternatives that a text lists.
_MAX_LISTED = 3
#: Amounts with more characters than this are rounded, to one of these units.
_MAX_EXACT_CHARACTERS = 6
_UNITS = {"Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20}


class OfferingFilter(NamedTuple):
    """One filter. `code` is the reason code if it rejects the last offering, `mask` are the offerings that pass."""

    code: str
    words: str
    mask: int
    resource: str = ""
    """The resource that is requested; `absent` if no type of the pool has it."""
    absent: bool = False
    clauses: Term = ()
    """The requirements on one label."""
    exclusion: Exclusion = Exclusion()
    """What it says, as data, beside the label or the resource."""


def offering_filters(problem: Problem, request: PlacementRequest, pool: int) -> Iterator[OfferingFilter]:
    """The filters that depend on the offering alone, in order."""
    catalog, own = problem.catalog, problem.catalog.of_pool[pool]
    yield from label_and_taint_filters(problem, request, pool)
    for name, amount in sorted(request.cls.requests.items()):
        mask = catalog.holding(name, amount)
        absent = not mask & own and not name.startswith((PORT, ATTACH)) and not catalog.holding(name, 1) & own
        yield OfferingFilter(_size_code(name), request_text(name, amount), mask, name, absent)
    if catalog.overcommitted & own:
        yield OfferingFilter(
            "NO_TYPE_FITS", message("room for the node's DaemonSets"), catalog.everything & ~catalog.overcommitted
        )
    unpriced = catalog.recall("unpriced", lambda: _without_price(catalog))
    if unpriced:
        yield OfferingFilter("NO_PRICE", message("a known price"), catalog.everything & ~unpriced)
    yield OfferingFilter(
        "NO_OFFERING", message("capacity to be had now"), catalog.available | catalog.overcommitted | unpriced
    )


def _without_price(catalog: OfferingCatalog) -> int:
    """The unavailable offerings without a price."""
    unpriced = catalog.mask(row.offering.price is None for row in catalog.rows)
    return unpriced & ~catalog.available & ~catalog.overcommitted


def label_and_taint_filters(problem: Problem, request: PlacementRequest, pool: int) -> Iterator[OfferingFilter]:
    """The filters that do not depend on the size of the node: taints, labels, topology of volumes."""
    catalog, template = problem.catalog, problem.pools[pool]
    missing = untolerated(template.taints, request.cls.shape.tolerations, ("NoSchedule", "NoExecute"))
    words = f"taint{'s' * (len(missing) != 1)} {', '.join(map(taint_text, missing))}".rstrip()
    exclusion = Exclusion(taints=tuple(taint.key for taint in missing))
    yield OfferingFilter("UNTOLERATED_TAINT", words, 0 if missing else catalog.everything, exclusion=exclusion)
    terms = request.level.terms
    if len(terms) == 1:
        for together in _by_key(terms[0]):
            words = _all_of(together)
            yield OfferingFilter(
                _label_code(catalog, problem.pools, template, together), words, catalog.term(together), clauses=together
            )
    else:
        unknown = all(_label_code(catalog, problem.pools, template, term) == "UNKNOWN_LABEL" for term in terms)
        code = "UNKNOWN_LABEL" if unknown else "NO_TYPE_MATCHES"
        labels = tuple(dict.fromkeys(clause[0] for term in terms for clause in term))
        yield OfferingFilter(code, _any_of(terms), catalog.any_term(terms), exclusion=Exclusion(labels=labels))
    storage = request.cls.storage.alternatives
    if storage != ((),):
        keys = dict.fromkeys(key for term in storage for key, _, _ in term)
        yield OfferingFilter(
            "VOLUME_ZONE",
            message("volumes in {any_of}", any_of=_any_of(storage)),
            catalog.any_term(storage),
            exclusion=Exclusion(labels=tuple(keys)),
        )


def is_known_label(catalog: OfferingCatalog, pool: Pool, key: str) -> bool:
    """Whether nodes of a pool can have a label at all."""
    return key in WELL_KNOWN or key in (HOSTNAME, NODE_NAME, "") or key in label_keys(catalog, pool)


def all_label_keys(catalog: OfferingCatalog, pools: Sequence[Pool]) -> frozenset[str]:
    """The label keys that nodes of any pool can have."""
    return catalog.recall("every label", lambda: frozenset[str]().union(*(label_keys(catalog, p) for p in pools)))


def label_keys(catalog: OfferingCatalog, pool: Pool) -> frozenset[str]:
    """The label keys of a pool, of its requirements and of its types."""

    def keys() -> frozenset[str]:
        own = {*pool.labels, *(need.key for need in pool.requirements)}
        return frozenset(own.union(*(kind.labels for kind in pool.types)))

    return catalog.recall(("labels", pool.name), keys)


def _by_key(term: Term) -> list[Term]:
    """The clauses of a term by label key: clauses on one label may contradict each other."""
    by_key: dict[str, list[Clause]] = {}
    for clause in term:
        by_key.setdefault(clause[0], []).append(clause)
    return [tuple(clauses) for clauses in by_key.values()]


def _all_of(together: Term) -> str:
    """The clauses on one label as text, with its key once."""
    first, *others = together
    described = text(first) if first != NEVER else message("an empty node selector")
    return " and ".join([described, *(text(clause).removeprefix(f"{clause[0]} ") for clause in others)])


def _any_of(terms: tuple[Term, ...]) -> str:
    described = [", ".join(map(_all_of, _by_key(term))) for term in terms[:_MAX_LISTED]]
    return " or ".join([*described, "others"] if len(terms) > _MAX_LISTED else described)


def _label_code(catalog: OfferingCatalog, pools: Sequence[Pool], pool: Pool, term: Term) -> str:
    """A label that nodes of another pool have is known: it is its value that this pool does not have."""
    every = all_label_keys(catalog, pools)
    declared = all(clause[0] in every or is_known_label(catalog, pool, clause[0]) for clause in term)
    return "NO_TYPE_MATCHES" if declared else "UNKNOWN_LABEL"


def _size_code(name: str) -> str:
    if name.startswith(ATTACH):
        return "VOLUME_LIMIT"
    return "HOST_PORT_TAKEN" if name.startswith(PORT) else "NO_TYPE_FITS"


def request_text(name: str, amount: int) -> str:
    if name.startswith(ATTACH):
        return plural("{n} volume of {driver}", "{n} volumes of {driver}", n=amount, driver=driver_of(name))
    if name.startswith(PORT):
        protocol, number, address = name.removeprefix(PORT).rsplit("/", 2)
        if protocol.startswith(DISK):
            return f"disk {protocol.removeprefix(DISK)}"
        if address == EVERYWHERE:
            return message("host port {number}/{protocol}", number=number, protocol=protocol)
        return message("host port {number}/{protocol} of {address}", number=number, protocol=protocol, address=address)
    return f"{name} {amount_text(name, amount)}"


@lru_cache(maxsize=4096)
def amount_text(name: str, amount: int) -> str:
    """An amount as a Kubernetes quantity; bytes that would need many digits are rounded."""
    text = format_resources({name: amount})[name]
    unit = next((unit for unit, size in _UNITS.items() if amount >= size), "")
    long = len(text) > _MAX_EXACT_CHARACTERS and name in ("memory", "ephemeral-storage")
    return f"{amount / _UNITS[unit]:.1f}{unit}" if long and unit else text


_CODES = {SPREAD: "SPREAD", AFFINITY: "AFFINITY", ANTI: "ANTI_AFFINITY"}
#: Domains that a text lists.
_MAX_NAMES = 5


def state_filters(
    problem: Problem, state: PackingState, request: PlacementRequest, pool: int
) -> Iterator[OfferingFilter]:
    """The filters of a new node that depend on the packing state, in order: topology rules, then limits."""
    for counter in request.topology.host_owned:
        if counter.kind == AFFINITY:
            yield _hostname_affinity(problem, state, request, counter)
    for counter in request.topology.domain_owned:
        yield _own_topology_rule(problem, state, request, counter)
    for counter in request.topology.domain_members:
        if counter.kind != AFFINITY and counter not in request.topology.domain_owned:
            yield _topology_rule_of_others(problem, state, counter)
    yield from _limits(problem, state, pool)


def min_values_filters(problem: Problem, pool: int, left: int) -> Iterator[OfferingFilter]:
    """The minValues of a pool that its remaining offerings do not meet."""
    for key, least in problem.min_values.get(pool, ()):
        there = sum(1 for value, mask in problem.catalog.by_label(key).items() if value is not None and mask & left)
        if there < least:
            count = f"there {'is' if there == 1 else 'are'} {there}"
            words = message("minValues {least} of {key} ({count})", least=least, key=key, count=count)
            yield OfferingFilter("MIN_VALUES", words, 0, exclusion=Exclusion(min_values={key: there}))


def combined_filter(problem: Problem, pool: int) -> OfferingFilter:
    """The last filter, for a pod that no single filter excludes: minValues, or topology rules in combination."""
    if pool in problem.min_values:
        needs = ", ".join(message("{least} of {key}", least=least, key=key) for key, least in problem.min_values[pool])
        exclusion = Exclusion(min_values={key: 0 for key, _ in problem.min_values[pool]})
        return OfferingFilter(
            "MIN_VALUES", message("minValues {needs} on one node", needs=needs), 0, exclusion=exclusion
        )
    return OfferingFilter("SPREAD", message("affinity and spread constraints between it and other pods"), 0)


def _hostname_affinity(
    problem: Problem, state: PackingState, request: PlacementRequest, counter: TopologyCounter
) -> OfferingFilter:
    """A hostname affinity: a new node has no target pods, unless the pod is the first of a self-affinity."""
    there = bool((state.host_counts[counter.slot, : state.size] > 0).any())
    why = message("no room beside it") if there else _why_target_is_missing(problem, counter)
    opens = not there and counter in request.topology.own
    return OfferingFilter(
        "AFFINITY", f"{_rule_text(counter.group, request)} ({why})", problem.catalog.everything if opens else 0
    )


def _why_target_is_missing(problem: Problem, counter: TopologyCounter) -> str:
    """Why no target pod of an affinity is on a node."""
    waiting = any(counter.group in pod_class.kind.members for pod_class in problem.classes)
    return message("those pods have no node either") if waiting else message("no such pod")


def _own_topology_rule(
    problem: Problem, state: PackingState, request: PlacementRequest, counter: TopologyCounter
) -> OfferingFilter:
    assert counter.topology_key is not None
    words = _rule_text(counter.group, request)
    if not counter.topology_key.values and counter.kind != ANTI:
        return OfferingFilter("UNKNOWN_LABEL", message("{words} (no node has that label)", words=words), 0)
    allowed = [UNLIMITED] * (len(counter.topology_key.values) + 1)
    allow_owner(request, counter, state.counts[counter.slot], allowed)
    if counter.kind == AFFINITY and not any(allowed):
        return OfferingFilter("AFFINITY", f"{words} ({_why_target_is_missing(problem, counter)})", 0)
    return _domains(problem, counter, words, allowed)


def _topology_rule_of_others(problem: Problem, state: PackingState, counter: TopologyCounter) -> OfferingFilter:
    """A spread or anti-affinity of other pods that counts this one."""
    assert counter.topology_key is not None
    allowed = [UNLIMITED] * (len(counter.topology_key.values) + 1)
    allow_member(counter, state.counts[counter.slot], state.owners[counter.slot], allowed)
    rule, to = (message("topology spread"), "over") if counter.kind == SPREAD else ("anti-affinity", "by")
    return _domains(
        problem,
        counter,
        message(
            "the {rule} of {owner} {to} {group}",
            rule=rule,
            owner=_owner(problem, counter.group),
            to=to,
            group=counter.group.key,
        ),
        allowed,
    )


def _owner(problem: Problem, group: TopologyGroup) -> str:
    """The first pod that owns a topology group: a running one, else a pending one."""
    there = sorted(
        (problem.all_nodes[row] for row in problem.running_anti_affinities.get(group, ())), key=lambda node: node.name
    )
    running = sorted(pod_key(pod) for node in there[:1] for pod in node.pods if _owns(problem, pod, group))
    pending = (name for cls in problem.classes if group in cls.levels[0].hard for name in cls.pods)
    return next(chain(running, pending), message("another pod"))


def _owns(problem: Problem, pod: Pod, group: TopologyGroup) -> bool:
    rules = shape_of(pod, problem.snapshot.memory).anti
    return any((rule.key, rule.selector, rule.weight) == (group.key, group.selector, 0) for rule in rules)


def _domains(problem: Problem, counter: TopologyCounter, words: str, allowed: list[int]) -> OfferingFilter:
    assert counter.topology_key is not None
    if all(allowed):
        return OfferingFilter(_CODES[counter.kind], words, problem.catalog.everything)
    free = [value for value, room in zip(counter.topology_key.values, allowed, strict=False) if room]
    more = message(" and others") if len(free) > _MAX_NAMES else ""
    listed = ", ".join(free[:_MAX_NAMES]) + more
    described = message("in {domains}", domains=listed) if free else message("nowhere")
    mask = problem.catalog.mask(np.array(allowed)[counter.topology_key.offerings] > 0)
    return OfferingFilter(_CODES[counter.kind], f"{words} (room {described})", mask)


def _rule_text(group: TopologyGroup, request: PlacementRequest) -> str:
    if group.kind == SPREAD:
        least = f", minDomains {group.min_domains}" if group.min_domains > 1 else ""
        return message(
            "topology spread over {group}, maxSkew {max_skew}{least}",
            group=group.key,
            max_skew=group.max_skew,
            least=least,
        )
    rule = "affinity" if group.kind == AFFINITY else "anti-affinity"
    spaces = group.namespaces or ()
    elsewhere = (
        message(" in {namespaces}", namespaces=", ".join(sorted(spaces)))
        if {*spaces} - {request.cls.shape.namespace}
        else ""
    )
    return message(
        "pod {rule} to {selected}{elsewhere} by {group}",
        rule=rule,
        selected=_selector_text(group.selector),
        elsewhere=elsewhere,
        group=group.key,
    )


def _selector_text(selector: Term) -> str:
    """A label selector as text, in kubectl's short form where it has one."""
    described = [
        f"{key}={values[0]}" if operator == "In" and len(values) == 1 else text((key, operator, values))
        for key, operator, values in selector
    ]
    return ",".join(described) or message("any pod")


def _limits(problem: Problem, state: PackingState, pool: int) -> Iterator[OfferingFilter]:
    catalog = problem.catalog
    full = {name for name, most in problem.reservations.items() if state.reserved.get(name, 0) >= most}
    if full:
        mask = catalog.mask(row.offering.reservation_id not in full for row in catalog.rows)
        yield OfferingFilter("RESERVATION_FULL", message("reservations with room"), mask)
    for name, left in sorted(state.left[pool].items()):
        words = message("{name} limit ({shown} left)", name=name, shown=amount_text(name, max(0, left)))
        within = (catalog.everything if left > 0 else 0) if name == "nodes" else capacity_at_most(catalog, name, left)
        yield OfferingFilter("LIMIT_REACHED", words, within, exclusion=Exclusion(limit=name, limit_left=left))
