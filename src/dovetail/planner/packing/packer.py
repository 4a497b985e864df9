"""The packer: places the pods of one class in bulk, on existing nodes first, then on new ones.

A new node uses the offering that `offering_choice` names, and is resized to a cheaper one at the end of the packing.
A hostname rule is a cap on the pods of each node. A topology spread over domains is served by water-filling: each pod
goes to the domain with the lowest count, so that the counts rise evenly, up to the highest count that maxSkew allows.
`DomainPlan` holds what all pods with the same topology constraints need to know about one topology key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.packing.candidate_nodes import CandidateNodes
from dovetail.planner.packing.offering_choice import OfferingChoice
from dovetail.planner.packing.resize import Growth
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.request import PlacementRequest, TopologyConstraints
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD

#: Nodes with one pod each are opened in groups of this many in one domain, then in the next.
_MAX_NODES_PER_DOMAIN_TURN = 16


class _Domains(dict[int, Bools]):
    """Domain of a topology key → mask with only that domain set, made on demand; the last entry is "no domain"."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __missing__(self, domain: int) -> Bools:
        only = self[domain] = np.zeros(self._size, dtype=np.bool_)
        only[domain] = True
        return only


class Packer:
    """Builds one packing."""

    def __init__(self, problem: Problem, strategy: Strategy, state: PackingState | None = None) -> None:
        self.problem = problem
        self.strategy = strategy
        self.state = state or PackingState(problem)
        self.ignore_counted = False
        self.budget = UNLIMITED
        """The number of nodes that may still be opened."""
        self.waiting: Floats = np.zeros(len(problem.dims))
        self.pods_refusing_to_share = 0
        """The number of pods of later classes that refuse to share a node with those being placed."""
        self.extra: list[tuple[int, Bools]] = []
        """Further topology keys, with the domains in which the pods must be placed."""
        self.targets = OfferingChoice(problem)
        self.candidate_nodes = CandidateNodes()
        self.growth = Growth(self.candidate_nodes)
        self._turn = 0
        self._only = [_Domains(len(topology_key.values) + 1) for topology_key in problem.topology_keys]
        self._masks: dict[tuple[int, ...], Bools] = {}
        self._domain_plans: dict[TopologyConstraints, list[DomainPlan]] = {}

    # -- placing ------------------------------------------------------------------------------------------------

    def place(self, request: PlacementRequest, count: int) -> int:
        """Place up to `count` pods of the request; returns the number placed."""
        domain_plans = self._domain_plans.get(request.topology)
        if domain_plans is None:
            domain_plans = self._domain_plans[request.topology] = [
                DomainPlan(request.topology, topology_key, self.strategy)
                for topology_key in request.topology.topology_keys
            ]
        if len(domain_plans) != 1:
            return (
                self._place_on_topology_keys(request, count, domain_plans)
                if domain_plans
                else self._fill(request, count, None, None)
            )
        domain_plan = domain_plans[0]
        if count == 1 and domain_plan.simple is not None:
            return self._place_in_lowest_domain(request, domain_plan, domain_plan.simple)
        return self._place_on_topology_key(request, count, domain_plan)

    def place_at(self, request: PlacementRequest, count: int, where: tuple[int, ...]) -> int:
        """Place up to `count` pods in one domain of each topology key (-1: any); the caller has checked the rules."""
        chosen = [
            (topology_key, self._only[topology_key][domain]) for topology_key, domain in enumerate(where) if domain >= 0
        ]
        if not chosen:
            return self._fill(request, count, None, None)
        self.extra = chosen[1:]
        try:
            return self._fill(request, count, *chosen[0])
        finally:
            self.extra = []

    def _place_on_topology_key(self, request: PlacementRequest, count: int, domain_plan: DomainPlan) -> int:
        settle, slack = self.strategy.existing_first, self.strategy.cheapest_domain
        placed = self._place_on_open_nodes(request, count, domain_plan) if settle else 0
        blocked: set[int] = set()
        while placed < count:
            amount = 1 if settle else count - placed
            level = (
                domain_plan.balance is not None
                and not slack
                and not (domain_plan.domain_self_affinities and self._first_of_its_kind(domain_plan))
            )
            newly_placed = self._fill_domains_evenly(request, amount, domain_plan, blocked) if level else 0
            if not newly_placed and not (level and domain_plan.own):
                newly_placed = self._place_in_any_allowed_domain(request, amount, domain_plan, blocked)
            if newly_placed and settle:
                newly_placed += self._place_on_open_nodes(request, count - placed - newly_placed, domain_plan)
            if not newly_placed:
                break
            placed += newly_placed
        return placed

    def _place_in_lowest_domain(
        self, request: PlacementRequest, domain_plan: DomainPlan, counter: TopologyCounter
    ) -> int:
        """Place one pod in the domain with the lowest count of the only spread that applies."""
        domain = lowest(self.state.counts[counter.slot], counter.among)
        placed = self._fill(request, 1, domain_plan.topology_key, self._only[domain_plan.topology_key][domain])
        return (
            placed
            if placed or domain_plan.own
            else self._place_in_any_allowed_domain(request, 1, domain_plan, {domain})
        )

    def _place_on_open_nodes(self, request: PlacementRequest, count: int, domain_plan: DomainPlan) -> int:
        """Place pods on nodes that are already open, domain by domain, as far as every rule allows."""
        placed, topology_key = 0, domain_plan.topology_key
        while placed < count and not self._first_of_its_kind(domain_plan):
            allowed = self.state.allowance(request, topology_key, self.ignore_counted)
            domains = self._rotated([index for index, most in enumerate(allowed[:-1]) if most > 0])
            tries = (
                self._place_on_open_or_enlarged_nodes(
                    request, min(count - placed, allowed[domain]), topology_key, self._only[topology_key][domain]
                )
                for domain in domains
            )
            newly_placed = next((try_ for try_ in tries if try_), 0)
            if not newly_placed:
                break
            placed += newly_placed
        return placed

    def _place_on_open_or_enlarged_nodes(
        self, request: PlacementRequest, count: int, topology_key: int, domains: Bools
    ) -> int:
        placed = self._fill_open_nodes(request, count, topology_key, domains)
        return placed or (
            self._enlarge(request, count, topology_key, domains) if self.strategy.prefer_larger_nodes else 0
        )

    def _fill_domains_evenly(
        self, request: PlacementRequest, count: int, domain_plan: DomainPlan, blocked: set[int]
    ) -> int:
        """Water-filling: place pods so that the domains' counts rise evenly, as far as maxSkew allows."""
        counter, topology_key = domain_plan.balance, domain_plan.topology_key
        assert counter is not None
        counts, universe = self.state.counts[counter.slot], counter.among
        others = (
            self.state.allowance(request, topology_key, self.ignore_counted, counter) if domain_plan.bound else None
        )
        usable = universe
        if others is not None or blocked:
            usable = [node for node in universe if (others is None or others[node] > 0) and node not in blocked]
        if not usable:
            return 0
        usable = self._rotated(usable) if self.strategy.domain_rotation else usable
        skew = counter.skew
        top = skew if len(universe) < counter.group.min_domains else UNLIMITED
        if len(usable) < len(universe) and counter.kind == SPREAD:
            top = min(top, skew + min(counts[node] for node in universe if node not in usable))
        if count > 1 and not self._can_fill_any_amount(request, topology_key, usable):
            least = min([counts[node] for node in usable])
            count = min(count, [counts[node] for node in usable].count(least))
        placed = 0
        for domain, quota in quotas(counts, usable, count, top).items():
            amount = quota if others is None else min(quota, others[domain])
            served = self._fill(request, amount, topology_key, self._only[topology_key][domain])
            placed += served
            if served < amount:
                blocked.add(domain)
        return placed

    def _can_fill_any_amount(self, request: PlacementRequest, topology_key: int, usable: list[int]) -> bool:
        """Whether every domain takes any number of pods; if not, water-filling raises the counts by one at a time."""
        if self.problem.binding or self.problem.reservations or self.state.per_new(request) == 0:
            return False
        if any(counter.kind == AFFINITY for counter in request.topology.host_owned):
            return False
        return self.targets.domains(self, request, topology_key).issuperset(usable)

    def _rotated(self, domains: list[int]) -> list[int]:
        turn = self.strategy.domain_rotation % len(domains) if domains else 0
        return domains[turn:] + domains[:turn]

    def _domain_mask(self, topology_key: int, domains: list[int]) -> Bools:
        """Some domains of a topology key as a mask."""
        if len(domains) == 1:
            return self._only[topology_key][domains[0]]
        chosen = self._masks.get((topology_key, *domains))
        if chosen is None:
            chosen = self._masks[topology_key, *domains] = np.zeros(
                len(self.problem.topology_keys[topology_key].values) + 1, dtype=np.bool_
            )
            chosen[domains] = True
        return chosen

    def _place_in_any_allowed_domain(
        self, request: PlacementRequest, count: int, domain_plan: DomainPlan, blocked: set[int]
    ) -> int:
        topology_key = domain_plan.topology_key
        allowed = self.state.allowance(request, topology_key, self.ignore_counted)
        for domain in blocked:
            allowed[domain] = 0
        if self._first_of_its_kind(domain_plan):
            return self._place_first_of_its_kind(request, count, topology_key, allowed)
        nowhere = len(allowed) - 1
        free = [index for index, most in enumerate(allowed) if most >= count]
        if free:
            placed = self._fill(request, count, topology_key, self._domain_mask(topology_key, free))
            if placed:
                return placed
            blocked.update(node for node in free if node < nowhere)
        for domain in self._rotated([index for index, most in enumerate(allowed) if 0 < most < count]):
            placed = self._fill(request, allowed[domain], topology_key, self._only[topology_key][domain])
            if placed:
                return placed
            if domain < nowhere:
                blocked.add(domain)
        return 0

    def _first_of_its_kind(self, domain_plan: DomainPlan) -> bool:
        """Whether the pods have an affinity to their own kind and none is placed: the first pod fixes the domain."""
        return bool(domain_plan.domain_self_affinities) and any(
            not any(self.state.counts[counter.slot]) for counter in domain_plan.domain_self_affinities
        )

    def _place_first_of_its_kind(
        self, request: PlacementRequest, count: int, topology_key: int, allowed: list[int]
    ) -> int:
        """Place the first pods of a self-affinity: in the first domain that takes all, else where most fit."""
        best, best_got = -1, 0
        candidates = self._rotated([index for index, most in enumerate(allowed[:-1]) if most > 0])
        if (
            candidates
            and min(allowed[candidates[0]], self.budget) >= count
            and self._can_fill_any_amount(request, topology_key, candidates[:1])
        ):
            candidates = candidates[:1]
        before = self.state
        for domain in candidates:
            self.state = before.clone() if len(candidates) > 1 else before
            placed = self._fill(request, min(count, allowed[domain]), topology_key, self._only[topology_key][domain])
            if placed == count:
                return placed
            self._forget()
            if placed > best_got:
                best, best_got = domain, placed
        if best < 0 or len(candidates) == 1:
            return best_got
        self.state = before
        return self._fill(request, min(count, allowed[best]), topology_key, self._only[topology_key][best])

    def _place_on_topology_keys(self, request: PlacementRequest, count: int, domain_plans: list[DomainPlan]) -> int:
        """Place pods with rules on several topology keys one by one, lowest counts first."""
        placed = 0
        while placed < count:
            settled = self.strategy.existing_first and self._place_one_on_open_nodes(request, domain_plans)
            if not settled and not self._place_one(request, domain_plans):
                break
            placed += 1
        return placed

    def _place_one_on_open_nodes(self, request: PlacementRequest, domain_plans: list[DomainPlan]) -> bool:
        """Place one pod on a node that is already open and in domains that every rule allows; says whether it did."""
        if any(self._first_of_its_kind(domain_plan) for domain_plan in domain_plans):
            return False
        chosen: list[tuple[int, Bools]] = []
        for domain_plan in domain_plans:
            allowed = self.state.allowance(request, domain_plan.topology_key, self.ignore_counted)
            chosen.append(
                (
                    domain_plan.topology_key,
                    self._domain_mask(
                        domain_plan.topology_key, [index for index, most in enumerate(allowed) if most > 0]
                    ),
                )
            )
        self.extra = chosen[1:]
        try:
            return self._place_on_open_or_enlarged_nodes(request, 1, *chosen[0]) > 0
        finally:
            self.extra = []

    def _place_one(self, request: PlacementRequest, domain_plans: list[DomainPlan]) -> bool:
        options: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        for domain_plan in domain_plans:
            allowed = self.state.allowance(request, domain_plan.topology_key, self.ignore_counted)
            heights = self._counts_by_domain(request, domain_plan)
            domains = self._rotated([index for index, most in enumerate(allowed) if most > 0])
            options = [(h + int(heights[domain]), (*path, domain)) for h, path in options for domain in domains]
            options = sorted(options, key=lambda option: option[0])[:512]
        for _, path in options:
            where = dict(zip(request.topology.topology_keys, path, strict=True))
            if self.place_at(
                request,
                1,
                tuple(where.get(topology_key, -1) for topology_key in range(len(self.problem.topology_keys))),
            ):
                return True
        return False

    def _counts_by_domain(self, request: PlacementRequest, domain_plan: DomainPlan) -> Ints:
        """The counts of each domain, summed over the spreads of the request and the spread that is balanced."""
        heights = np.zeros(len(self.problem.topology_keys[domain_plan.topology_key].values) + 1, dtype=np.int64)
        counters = [
            counter
            for counter in request.topology.domain_owned
            if counter.place == domain_plan.topology_key and counter.kind == SPREAD
        ]
        for counter in (
            *counters,
            *([domain_plan.balance] if domain_plan.balance is not None and not domain_plan.own else ()),
        ):
            heights[:-1] += np.array(self.state.counts[counter.slot], dtype=np.int64)
        return heights

    # -- filling ------------------------------------------------------------------------------------------------

    def _fill(self, request: PlacementRequest, count: int, topology_key: int | None, domains: Bools | None) -> int:
        """Place pods on open nodes, then on newly opened ones, then on enlarged ones, within the domains."""
        if request.topology.host_self_affinities:
            placed = self._fill_open_nodes(request, count, topology_key, domains)
        else:
            placed = self.candidate_nodes.fill(self, request, count, topology_key, domains)
        if placed == count:
            return placed
        grow = self.strategy.prefer_larger_nodes
        if grow:
            placed += self._enlarge(request, count - placed, topology_key, domains)
        opened = self._open(request, count - placed, topology_key, domains) if placed < count else 0
        placed += opened
        if placed < count and (opened or not grow):
            placed += self._enlarge(request, count - placed, topology_key, domains)
        return placed

    def _fill_open_nodes(
        self, request: PlacementRequest, count: int, topology_key: int | None, domains: Bools | None
    ) -> int:
        """Place pods on nodes that are already open, in their order."""
        if request.topology.host_self_affinities and self._needs_one_node(request):
            return self._place_on_one_node(
                request, count, self.state.domains[topology_key] if topology_key is not None else None, domains
            )
        return self.candidate_nodes.fill(self, request, count, topology_key, domains)

    def _place_on_one_node(
        self, request: PlacementRequest, count: int, lying: Ints | None, domains: Bools | None
    ) -> int:
        """Place as many pods as possible on the one node that takes most of them."""
        if self.strategy.size_for_demand and not self._one_node_holds_all(request):
            return 0
        bins = self._within_extra_domains(self.state.fitting(request, 0, lying, domains))
        bins, room = self.state.shares(request, bins, count, self.ignore_counted)
        if not len(bins):
            return 0
        best = int(room.argmax())
        self.candidate_nodes.put(self.state, request, int(bins[best]), int(room[best]))
        return int(room[best])

    def _within_extra_domains(self, bins: Ints) -> Ints:
        for other, chosen in self.extra:
            bins = bins[chosen[self.state.domains[other][bins]]]
        return bins

    def _one_node_holds_all(self, request: PlacementRequest) -> bool:
        """Whether one open node holds the whole class; if not, a new node may hold more of it."""
        need = request.amounts[:, None] * request.cls.count
        return bool((self.state.free[:, : self.state.size] >= need).all(axis=0).any())

    def _needs_one_node(self, request: PlacementRequest) -> bool:
        """Whether the pods have a hostname affinity to their own kind and none is placed yet: all go to one node."""
        return any(
            self.candidate_nodes.is_empty(self.state, counter) for counter in request.topology.host_self_affinities
        )

    def _open(self, request: PlacementRequest, count: int, topology_key: int | None, domains: Bools | None) -> int:
        per = self.state.per_new(request)
        placed = 0
        while placed < count and per > 0 and self.budget > 0:
            chosen = self.targets.best(self, request, count - placed, per, topology_key, domains)
            if chosen is None:
                break
            offering, fits = chosen
            alone = self._needs_one_node(request)
            watched = self.problem.binding or self.problem.reservations
            nodes = 1 if watched else max(1, (count - placed) // fits)
            if self.state.gone:
                self._forget()
            nodes, take = 1 if alone else min(nodes, self.budget), min(fits, count - placed)
            if topology_key is None and request.topology.host_self_anti_affinities and not watched:
                twins = self.targets.same_but_domain(request, offering)
                offering, nodes = twins[self._turn % len(twins)], min(nodes, _MAX_NODES_PER_DOMAIN_TURN)
                self._turn += 1
            self.candidate_nodes.open_nodes(self.state, request, offering, nodes, take)
            self.budget -= nodes
            placed += nodes * take
            if alone:
                placed += self._fill_open_nodes(request, count - placed, topology_key, domains) if placed < count else 0
                break
        return placed

    def _forget(self) -> None:
        self.candidate_nodes.forget()
        self.growth.forget()

    # -- enlarging ----------------------------------------------------------------------------------------------

    def _enlarge(self, request: PlacementRequest, count: int, topology_key: int | None, domains: Bools | None) -> int:
        """Move new nodes to larger offerings to take more pods, least extra price first."""
        placed = 0
        while placed < count:
            best = (
                self.growth.best(self, request, topology_key, domains)
                if self.state.size > self.state.existing
                else None
            )
            if best is None:
                break
            node, offering = best
            if self.state.move(node, offering):
                self.growth.forget()
            self.candidate_nodes.moved(self.state, node)
            self.candidate_nodes.put(self.state, request, node, 1)
            placed += 1
        return placed


class DomainPlan:
    """For one topology key: the spread to balance (`balance`), whether the pods own it, and whether others apply."""

    __slots__ = ("balance", "bound", "domain_self_affinities", "own", "simple", "topology_key")

    def __init__(self, topology: TopologyConstraints, topology_key: int, strategy: Strategy) -> None:
        owned, counting, self.domain_self_affinities = (
            topology.domain_owned,
            topology.domain_members,
            topology.domain_self_affinities,
        )
        if len(topology.topology_keys) > 1:
            owned, counting, self.domain_self_affinities = (
                [counter for counter in counters if counter.place == topology_key]
                for counters in (owned, counting, self.domain_self_affinities)
            )
        counting = [counter for counter in counting if counter not in owned]
        self.topology_key = topology_key
        self.balance = next((counter for counter in owned if counter.kind == SPREAD and counter in topology.own), None)
        self.own = self.balance is not None
        if not self.own and strategy.balance_counted:
            self.balance = _widest(counting)
        self.bound = len(owned) + len(counting) > (self.balance is not None)
        """Whether a rule other than the balanced spread applies."""
        open_ended = self.balance is not None and self.balance.among and self.balance.open_ended
        plain = not (strategy.existing_first or strategy.cheapest_domain or strategy.domain_rotation)
        self.simple = self.balance if plain and open_ended and not self.bound else None
        """The balanced spread, if it alone decides: then the next pod goes to the domain with the lowest count."""


def _widest(counting: list[TopologyCounter]) -> TopologyCounter | None:
    """The counter with most domains among those that count pods without a spread of their own, or None."""
    widest: TopologyCounter | None = None
    for counter in counting:
        if counter.kind != ANTI and (widest is None or _width(counter) > _width(widest)):
            widest = counter
    return widest


def _width(counter: TopologyCounter) -> tuple[int, int]:
    return (len(counter.among), -counter.skew)


def lowest(counts: Sequence[int], domains: Sequence[int]) -> int:
    """The domain with the smallest count; of equal ones the first in `domains`."""
    domain = domains[0]
    for node in domains:
        if counts[node] < counts[domain]:
            domain = node
    return domain


def quotas(counts: Sequence[int], domains: Sequence[int], count: int, top: int) -> dict[int, int]:
    """Water-filling: the number of `count` pods that each domain gets, so that no count passes `top`.

    Of domains with equal counts the first in `domains` come first.
    """
    if count == 1:
        node = lowest(counts, domains)
        return {node: 1} if counts[node] < top else {}
    rising = sorted(domains, key=counts.__getitem__)
    while rising and counts[rising[-1]] >= top:
        rising.pop()
    reached = below = 0
    for node in rising:
        if counts[node] * reached - below >= count:
            break
        reached += 1
        below += counts[node]
    if not reached:
        return {}
    level, over = divmod(count + below, reached)
    if level >= top:
        level, over = top, 0
    quotas: dict[int, int] = {}
    for place, node in enumerate(rising[:reached]):
        more = level + (place < over) - counts[node]
        if more:
            quotas[node] = more
    return quotas
