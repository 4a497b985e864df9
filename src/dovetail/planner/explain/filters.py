"""Filters: each requirement of a pod on an offering, as text and as the mask of offerings that pass.

They explain why a pod has no node, and why a cheaper offering was not chosen. The first filters depend on the offering
alone; the later ones (topology rules, limits, reservations) depend on the packing state that the plan ends with.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.problem.pod_spec import DISK, shape_of
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import EVERYWHERE, PORT
from dovetail.planner.problem.shared_volumes import ATTACH, driver_of
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD, Group
from dovetail.planner.requirements import NEVER, NODE_NAME, Clause, Term, text
from dovetail.planner.snapshot import Pool

#: So many alternatives are listed in words.
_MAX_LISTED = 3
#: Amounts that take more letters than this are rounded, to one of these units.
_LONG = 6
_UNITS = {"Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20}


class Question(NamedTuple):
    """`code` is the reason if it turns away the last, `mask` the offerings that pass."""

    code: str
    words: str
    mask: int
    resource: str = ""
    """What it asks for an amount of; `absent` if the pool has none at all."""
    absent: bool = False
    clauses: Term = ()
    """What it requests of one label."""


def of_offerings(problem: Problem, request: PlacementRequest, pool: int) -> Iterator[Question]:
    """Every question asked of an offering of a pool, in order."""
    catalog, own = problem.catalog, problem.catalog.of_pool[pool]
    yield from of_kind(problem, request, pool)
    for name, amount in sorted(request.cls.requests.items()):
        mask = catalog.holding(name, amount)
        absent = not mask & own and not name.startswith((PORT, ATTACH)) and not catalog.holding(name, 1) & own
        yield Question(_size_code(name), size_words(name, amount), mask, name, absent)
    if catalog.overcommitted & own:
        yield Question(
            "NO_TYPE_FITS", message("room for the node's DaemonSets"), catalog.everything & ~catalog.overcommitted
        )
    unpriced = catalog.recall("unpriced", lambda: _unpriced(catalog))
    if unpriced:
        yield Question("NO_PRICE", message("a known price"), catalog.everything & ~unpriced)
    yield Question(
        "NO_OFFERING", message("capacity to be had now"), catalog.available | catalog.overcommitted | unpriced
    )


def _unpriced(catalog: OfferingCatalog) -> int:
    """What cannot be had, and has no price that is known."""
    unpriced = catalog.mask(row.offering.price is None for row in catalog.rows)
    return unpriced & ~catalog.available & ~catalog.overcommitted


def of_kind(problem: Problem, request: PlacementRequest, pool: int) -> Iterator[Question]:
    """The questions about the kind of node, whatever its size: taints, labels, where volumes are."""
    catalog, template = problem.catalog, problem.pools[pool]
    missing = untolerated(template.taints, request.cls.shape.tolerations, ("NoSchedule", "NoExecute"))
    words = f"taint{'s' * (len(missing) != 1)} {', '.join(map(taint_text, missing))}".rstrip()
    yield Question("UNTOLERATED_TAINT", words, 0 if missing else catalog.everything)
    terms = request.level.terms
    if len(terms) == 1:
        for together in _by_key(terms[0]):
            words = _all_of(together)
            yield Question(_label_code(catalog, template, together), words, catalog.term(together), clauses=together)
    else:
        unknown = all(_label_code(catalog, template, term) == "UNKNOWN_LABEL" for term in terms)
        yield Question("UNKNOWN_LABEL" if unknown else "NO_TYPE_MATCHES", _any_of(terms), catalog.any_term(terms))
    storage = request.cls.storage.alternatives
    if storage != ((),):
        yield Question(
            "VOLUME_ZONE", message("volumes in {any_of}", any_of=_any_of(storage)), catalog.any_term(storage)
        )


def known(catalog: OfferingCatalog, pool: Pool, key: str) -> bool:
    """Whether nodes of a pool can have a label at all."""
    return key in WELL_KNOWN or key in (HOSTNAME, NODE_NAME, "") or key in labels_of(catalog, pool)


def labels_of(catalog: OfferingCatalog, pool: Pool) -> frozenset[str]:
    """The labels that a pool and what its provider offers speak of."""

    def found() -> frozenset[str]:
        own = {*pool.labels, *(need.key for need in pool.requirements)}
        return frozenset(own.union(*(kind.labels for kind in pool.types)))

    return catalog.recall(("labels", pool.name), found)


def _by_key(term: Term) -> list[Term]:
    """What is asked of each label: questions of one label may contradict each other."""
    found: dict[str, list[Clause]] = {}
    for each in term:
        found.setdefault(each[0], []).append(each)
    return [tuple(together) for together in found.values()]


def _all_of(together: Term) -> str:
    """What is asked of one label, with its name once."""
    first, *others = together
    described = text(first) if first != NEVER else message("an empty node selector")
    return " and ".join([described, *(text(each).removeprefix(f"{each[0]} ") for each in others)])


def _any_of(terms: tuple[Term, ...]) -> str:
    described = [", ".join(map(_all_of, _by_key(term))) for term in terms[:_MAX_LISTED]]
    return " or ".join([*described, "others"] if len(terms) > _MAX_LISTED else described)


def _label_code(catalog: OfferingCatalog, pool: Pool, term: Term) -> str:
    return "NO_TYPE_MATCHES" if all(known(catalog, pool, each[0]) for each in term) else "UNKNOWN_LABEL"


def _size_code(name: str) -> str:
    if name.startswith(ATTACH):
        return "VOLUME_LIMIT"
    return "HOST_PORT_TAKEN" if name.startswith(PORT) else "NO_TYPE_FITS"


def size_words(name: str, amount: int) -> str:
    if name.startswith(ATTACH):
        return plural("{n} volume of {driver}", "{n} volumes of {driver}", n=amount, driver=driver_of(name))
    if name.startswith(PORT):
        protocol, number, address = name.removeprefix(PORT).rsplit("/", 2)
        if protocol.startswith(DISK):
            return f"disk {protocol.removeprefix(DISK)}"
        if address == EVERYWHERE:
            return message("host port {number}/{protocol}", number=number, protocol=protocol)
        return message("host port {number}/{protocol} of {address}", number=number, protocol=protocol, address=address)
    return f"{name} {shown(name, amount)}"


@lru_cache(maxsize=4096)
def shown(name: str, amount: int) -> str:
    """An amount of a resource as people write it; bytes that would take a long number are rounded."""
    text = format_resources({name: amount})[name]
    unit = next((unit for unit, size in _UNITS.items() if amount >= size), "")
    long = len(text) > _LONG and name in ("memory", "ephemeral-storage")
    return f"{amount / _UNITS[unit]:.1f}{unit}" if long and unit else text


_CODES = {SPREAD: "SPREAD", AFFINITY: "AFFINITY", ANTI: "ANTI_AFFINITY"}
#: So many domains are listed.
_MAX_NAMES = 5


def in_the_way(problem: Problem, state: PackingState, request: PlacementRequest, pool: int) -> Iterator[Question]:
    """What may stand in the way of a new node for the request, in order."""
    for counter in request.topology.host_owned:
        if counter.kind == AFFINITY:
            yield _beside(problem, state, request, counter)
    for counter in request.topology.domain_owned:
        yield _owned(problem, state, request, counter)
    for counter in request.topology.domain_members:
        if counter.kind != AFFINITY and counter not in request.topology.domain_owned:
            yield _counted(problem, state, counter)
    yield from _limits(problem, state, pool)


def too_few(problem: Problem, pool: int, left: int) -> Iterator[Question]:
    """The variety that a pool asks for and that what is left of it has not."""
    for key, least in problem.min_values.get(pool, ()):
        there = sum(1 for value, mask in problem.catalog.by_label(key).items() if value is not None and mask & left)
        if there < least:
            count = f"there {'is' if there == 1 else 'are'} {there}"
            yield Question(
                "MIN_VALUES", message("minValues {least} of {key} ({count})", least=least, key=key, count=count), 0
            )


def at_last(problem: Problem, pool: int) -> Question:
    """What keeps a pod out where no single thing does: too little choice, or rules about pods taken together."""
    if pool in problem.min_values:
        needs = ", ".join(message("{least} of {key}", least=least, key=key) for key, least in problem.min_values[pool])
        return Question("MIN_VALUES", message("minValues {needs} on one node", needs=needs), 0)
    return Question("SPREAD", message("affinity and spread constraints between it and other pods"), 0)


def _beside(problem: Problem, state: PackingState, request: PlacementRequest, counter: TopologyCounter) -> Question:
    """A hostname affinity: a new node has no target pods, unless the pod is the first of a self-affinity."""
    there = bool((state.host_counts[counter.slot, : state.size] > 0).any())
    why = message("no room beside it") if there else _missed(problem, counter)
    opens = not there and counter in request.topology.own
    return Question("AFFINITY", f"{_words(counter.group, request)} ({why})", problem.catalog.everything if opens else 0)


def _missed(problem: Problem, counter: TopologyCounter) -> str:
    """Why the target of an affinity is missing."""
    waiting = any(counter.group in one.kind.members for one in problem.classes)
    return message("those pods have no node either") if waiting else message("no such pod")


def _owned(problem: Problem, state: PackingState, request: PlacementRequest, counter: TopologyCounter) -> Question:
    assert counter.topology_key is not None
    words = _words(counter.group, request)
    if not counter.topology_key.values and counter.kind != ANTI:
        return Question("UNKNOWN_LABEL", message("{words} (no node has that label)", words=words), 0)
    allowed = [UNLIMITED] * (len(counter.topology_key.values) + 1)
    allow_owner(request, counter, state.counts[counter.slot], allowed)
    if counter.kind == AFFINITY and not any(allowed):
        return Question("AFFINITY", f"{words} ({_missed(problem, counter)})", 0)
    return _domains(problem, counter, words, allowed)


def _counted(problem: Problem, state: PackingState, counter: TopologyCounter) -> Question:
    """A rule of other pods."""
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


def _owner(problem: Problem, group: Group) -> str:
    """The first pod whose rule it is: one that runs, or one that waits as well."""
    there = sorted((problem.all_nodes[row] for row in problem.fears.get(group, ())), key=lambda node: node.name)
    running = sorted(pod_key(pod) for node in there[:1] for pod in node.pods if _owns(problem, pod, group))
    waiting = (name for one in problem.classes if group in one.levels[0].hard for name in one.pods)
    return next(chain(running, waiting), message("another pod"))


def _owns(problem: Problem, pod: Pod, group: Group) -> bool:
    rules = shape_of(pod, problem.snapshot.memory).anti
    return any((rule.key, rule.selector, rule.weight) == (group.key, group.selector, 0) for rule in rules)


def _domains(problem: Problem, counter: TopologyCounter, words: str, allowed: list[int]) -> Question:
    assert counter.topology_key is not None
    if all(allowed):
        return Question(_CODES[counter.kind], words, problem.catalog.everything)
    free = [value for value, room in zip(counter.topology_key.values, allowed, strict=False) if room]
    more = message(" and others") if len(free) > _MAX_NAMES else ""
    listed = ", ".join(free[:_MAX_NAMES]) + more
    described = message("in {domains}", domains=listed) if free else message("nowhere")
    mask = problem.catalog.mask(np.array(allowed)[counter.topology_key.offerings] > 0)
    return Question(_CODES[counter.kind], f"{words} (room {described})", mask)


def _words(group: Group, request: PlacementRequest) -> str:
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
        selected=_selected(group.selector),
        elsewhere=elsewhere,
        group=group.key,
    )


def _selected(selector: Term) -> str:
    """A selector as short as people write it."""
    described = [
        f"{key}={values[0]}" if operator == "In" and len(values) == 1 else text((key, operator, values))
        for key, operator, values in selector
    ]
    return ",".join(described) or message("any pod")


def _limits(problem: Problem, state: PackingState, pool: int) -> Iterator[Question]:
    catalog = problem.catalog
    full = {name for name, most in problem.reservations.items() if state.reserved.get(name, 0) >= most}
    if full:
        mask = catalog.mask(row.offering.reservation_id not in full for row in catalog.rows)
        yield Question("RESERVATION_FULL", message("reservations with room"), mask)
    for name, left in sorted(state.left[pool].items()):
        words = message("{name} limit ({shown} left)", name=name, shown=shown(name, max(0, left)))
        within = (catalog.everything if left > 0 else 0) if name == "nodes" else capacity_at_most(catalog, name, left)
        yield Question("LIMIT_REACHED", words, within)
