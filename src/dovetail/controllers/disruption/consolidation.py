"""Consolidation: the set of nodes whose removal saves most, with the nodes that replace them.

Nodes are added to the set in the order of price per disruption cost, as long as each makes the whole cheaper:
many may be replaced by several others. Only a real saving counts: at equal cost nothing moves, and the
replacements must be cheaper whichever of their offerings is launched.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from dovetail.controllers.disruption.types import Candidate
from dovetail.language import message, source
from dovetail.model.pods import Pod
from dovetail.planner.launch.price_filter import Types, cheaper, cheapest
from dovetail.planner.plan import Plan, PlannedNode

# What an eviction costs the workload: a charge for each pod, by its priority and its annotations.

DISRUPTION_COST = "karpenter.sh/disruption-cost"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_INT32 = 2**31
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")


def eviction_cost(pod: Pod, *, managed: bool = False) -> float:
    """1 for an ordinary pod, between -10 and 10. `managed`: deletion costs are ours, not the user's."""
    text = pod.metadata.annotations.get(DISRUPTION_COST)
    if text is None and not managed:
        text = pod.metadata.annotations.get(DELETION_COST)
    cost = 1.0 + _int32(text) / 2**27 + (pod.spec.priority or 0) / 2**25
    return max(-10.0, min(10.0, cost))


def node_disruption_cost(pods: Iterable[Pod], *, managed: bool = False) -> float:
    """The disruption cost of draining a node; 1 for one without pods to move."""
    return 1.0 + sum(max(0.0, eviction_cost(pod, managed=managed)) for pod in pods)


def _int32(text: str | None) -> int:
    """Base 10 and within 32 bits; any other text counts as 0."""
    if text is None or not _NUMBER.fullmatch(text):
        return 0
    value = int(text)
    return value if -_INT32 <= value < _INT32 else 0


#: Karpenter's own words, for events; templates of the catalogue for readers of another language.
NOT_ALL_PODS = source("not all pods would schedule")
NOT_CHEAPER = source("can't replace with a cheaper node")
SPOT_TO_SPOT_OFF = source("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
SPOT_INFLEXIBLE = source(
    "SpotToSpotConsolidation requires {needed} cheaper instance type options than the current candidate to consolidate,"
    " got {types}"
)
#: A saving below this share of the price of what is removed is not worth a disruption.
MIN_SAVING_SHARE = 0.02
#: How many cheaper types a spot node that replaces a spot node must have to choose from.
SPOT_CHOICES = 15
#: Simulations in one pass.
MAX_SIMULATIONS = 60
#: A part this small is not divided because it needs a replacement.
MAX_UNSPLIT_NODES = 4
#: Nothing is launched in place of nodes of a fleet that costs at most this share more than a fresh one would.
SLACK = 0.05
#: A fleet that costs at most this share more is close to a fresh one: from there on fewer moves count for more.
CLOSE = 0.03
#: How much of what is saved beyond that counts when sets are compared.
BEYOND = 0.1
#: How many whole sets are planned with effort.
MAX_SEARCHED_SETS = 6
#: In a fleet that costs at most this share more, each pod that is moved must save this share of a pod's cost.
NEAR, PAYS = 0.15, 1.0

NO_TYPES: Types = MappingProxyType({})
Simulate = Callable[[Sequence[Candidate]], Plan | None]
Allow = Callable[[Sequence[Candidate]], bool]


class ConsolidationProposal(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[Candidate, ...]
    plan: Plan
    saving: float

    @property
    def evictions(self) -> int:
        return _moves(self.candidates)


class RejectedConsolidation(msgspec.Struct, frozen=True):
    """The best that was found for one node, why it is not done, and what it would have had to save.

    `instead` describes the replacements.
    """

    code: str
    message: str
    saving: float | None = None
    needed: float | None = None
    instead: str = ""


def instead(plan: Plan) -> str:
    """What a plan launches, as text."""
    launched = Counter(f"{node.choice.instance_type} ({node.choice.capacity_type})" for node in plan.nodes)
    return ", ".join(f"{count} x {what}" for what, count in launched.items()) or "no replacement"


def rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Expensive nodes with few pods first; ties by name, so that the same cluster gives the same result."""
    priced = [candidate for candidate in candidates if candidate.price is not None]
    return sorted(priced, key=lambda candidate: (-(candidate.price or 0.0) / candidate.cost, candidate.node))


def evaluate(
    candidates: Sequence[Candidate],
    simulate: Simulate,
    *,
    spot_to_spot: bool,
    baseline: float = 0.0,
    types: Types = NO_TYPES,
) -> ConsolidationProposal | RejectedConsolidation:
    """Whether removing exactly these nodes pays. `types` say how different offerings are."""
    before = sum(candidate.price or 0.0 for candidate in candidates)
    plan = simulate(candidates)
    if plan is None:
        return RejectedConsolidation("PODS_WOULD_NOT_FIT", NOT_ALL_PODS)
    ceiling = before * (1 - MIN_SAVING_SHARE) + baseline
    if plan.cost.per_hour >= ceiling:
        saving = before + baseline - plan.cost.per_hour
        return RejectedConsolidation("NOT_CHEAPER", NOT_CHEAPER, saving, before * MIN_SAVING_SHARE, instead(plan))
    spot = all(candidate.capacity_type == "spot" for candidate in candidates)
    limited_nodes = []
    for planned in plan.nodes:
        limited = cheaper(planned, ceiling - (plan.cost.per_hour - planned.price), types)
        if limited is None:
            return RejectedConsolidation("NOT_CHEAPER", NOT_CHEAPER)
        if spot and limited.choice.capacity_type == "spot":
            problem = _spot_to_spot(limited, len(candidates), spot_to_spot)
            if problem is not None:
                return problem
            limited = cheapest(limited, SPOT_CHOICES, types) if len(candidates) == 1 else limited
        limited_nodes.append(limited)
    plan = msgspec.structs.replace(plan, nodes=tuple(limited_nodes))
    return ConsolidationProposal(candidates=tuple(candidates), plan=plan, saving=before + baseline - plan.cost.per_hour)


class ConsolidationContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a choice is made from, beside the candidates. `search` is `simulate` with more effort.

    `removals` are sets that might be removed as a whole, `thinned` those that need no replacement, by free capacity
    alone; `fresh` is what all the pods would cost on an empty cluster, `above` what the fleet costs more, as a share of
    it; nodes that were `refused` lately are not evaluated again.
    """

    simulate: Simulate
    search: Simulate
    allow: Allow
    removals: tuple[tuple[Candidate, ...], ...] = ()
    thinned: tuple[Candidate, ...] = ()
    fresh: float | None = None
    above: float = math.inf
    refused: Mapping[str, RejectedConsolidation] = MappingProxyType({})
    spot_to_spot: bool = False
    baseline: float = 0.0
    types: Types = NO_TYPES

    def evaluate(
        self, candidates: Sequence[Candidate], simulate: Simulate | None = None
    ) -> ConsolidationProposal | RejectedConsolidation:
        """Whether removing exactly these nodes pays."""
        return evaluate(
            candidates,
            simulate or self.simulate,
            spot_to_spot=self.spot_to_spot,
            baseline=self.baseline,
            types=self.types,
        )


def choose(
    candidates: Sequence[Candidate], question: ConsolidationContext
) -> tuple[ConsolidationProposal | None, dict[str, RejectedConsolidation]]:
    """The set that saves most, and why each of the others stays.

    First the best of whole sets; then, while the fleet is clearly dearer than a fresh one for the same pods, further
    nodes with their replacements.
    """
    judge = _ProposalEvaluator(question, candidates)
    best = _best_whole_set(question, judge)
    stays: dict[str, RejectedConsolidation] = {}
    removed_nodes = {candidate.node for candidate in best.candidates} if best else set()
    for candidate in rank(candidates):
        if candidate.node in removed_nodes:
            continue
        tried = (*best.candidates, candidate) if best else (candidate,)
        if not question.allow(tried):
            stays[candidate.node] = RejectedConsolidation(
                "BUDGET", message("no disruption budget is left for this node now")
            )
        elif judge.above(best, SLACK) is False:
            text = "no cheaper replacement: the fleet costs about as much as a freshly planned one"
            stays[candidate.node] = RejectedConsolidation("NEAR_BEST", text, *judge.slack(best))
        elif candidate.node in question.refused:
            stays[candidate.node] = question.refused[candidate.node]
        elif judge.asked >= MAX_SIMULATIONS:
            stays[candidate.node] = RejectedConsolidation(
                "NOT_LOOKED_AT", source("other nodes were evaluated first in this pass")
            )
        else:
            answer = judge(tried)
            if isinstance(answer, RejectedConsolidation):
                stays[candidate.node] = answer
            elif judge.pays(answer, best):
                best = answer
            else:
                stays[candidate.node] = RejectedConsolidation(
                    "NOT_CHEAPER", NOT_CHEAPER, answer.saving, instead=instead(answer.plan)
                )
    return best, stays


class _ProposalEvaluator:
    """Runs simulations, counts them, and weighs savings against moves."""

    def __init__(self, question: ConsolidationContext, candidates: Sequence[Candidate]) -> None:
        self._question = question
        self._cost = sum(candidate.price or 0.0 for candidate in candidates)
        self._pod = (question.fresh or 0.0) / max(1, sum(len(candidate.pods) for candidate in candidates))
        self.asked = 0

    def __call__(
        self, candidates: Sequence[Candidate], simulate: Simulate | None = None
    ) -> ConsolidationProposal | RejectedConsolidation:
        self.asked += 1
        return self._question.evaluate(candidates, simulate)

    def above(self, best: ConsolidationProposal | None, share: float) -> bool | None:
        """Whether the fleet would still cost so much more than a fresh one; None if the fresh cost is unknown."""
        fresh = self._question.fresh
        return None if fresh is None else self._cost - (best.saving if best else 0.0) > fresh * (1 + share)

    def slack(self, best: ConsolidationProposal | None) -> tuple[float, float]:
        """What a fresh fleet would save, and what it must save before replacements are launched."""
        fresh = self._question.fresh or 0.0
        return max(0.0, self._cost - (best.saving if best else 0.0) - fresh), fresh * SLACK

    def may_be_near_optimum(self, removed: Sequence[Candidate], share: float) -> bool:
        """Whether the fleet could come so close to a fresh one if no replacement were needed."""
        fresh = self._question.fresh
        return fresh is not None and self._cost - sum(candidate.price or 0.0 for candidate in removed) <= fresh * (
            1 + share
        )

    def pays(self, proposal: ConsolidationProposal, best: ConsolidationProposal | None = None) -> bool:
        """Whether the additional saving over the best pays for the additional evictions."""
        more = proposal.evictions - (best.evictions if best else 0)
        charged = PAYS * self._pod if best is not None or self.above(None, NEAR) is False else 0.0
        return proposal.saving - (best.saving if best else 0.0) > max(1e-9, charged * more)

    def better(
        self, best: ConsolidationProposal | None, answer: ConsolidationProposal | RejectedConsolidation | None
    ) -> ConsolidationProposal | None:
        """The better of the best so far and another, if that pays."""
        if not isinstance(answer, ConsolidationProposal) or not self.pays(answer):
            return best
        return answer if best is None or self._of(answer) > self._of(best) else best

    def may_beat(self, removed: Sequence[Candidate], best: ConsolidationProposal | None) -> bool:
        """Whether a set would be better than the best so far if it needed no replacement."""
        return best is None or self._merit(removed, sum(candidate.price or 0.0 for candidate in removed)) > self._of(
            best
        )

    def _of(self, proposal: ConsolidationProposal) -> float:
        return self._merit(proposal.candidates, proposal.saving)

    def _merit(self, removed: Sequence[Candidate], saving: float) -> float:
        """The saving, less a charge for every move; what is saved beyond a fleet close to fresh counts little."""
        close = (self._question.fresh or 0.0) * (1 + CLOSE)
        beyond = max(0.0, min(saving, close - (self._cost - saving)))
        return saving - (1 - BEYOND) * beyond - self._pod * _moves(removed)


def _best_whole_set(question: ConsolidationContext, judge: _ProposalEvaluator) -> ConsolidationProposal | None:
    """The best of whole sets: the largest saving for the moves it takes.

    They are planned quickly, those that cannot be the best not at all. Effort is spent on the one that is chosen, if
    it needs replacements; and on the promising ones, where none pays in a fleet that is clearly too expensive.
    """
    best = judge.better(None, _together(question.thinned, judge))
    for removed in sorted(question.removals, key=_moves):
        if judge.may_beat(removed, best):
            best = judge.better(best, judge(removed))
    if best is not None:
        return _searched(best, question, judge) if best.plan.nodes else best
    hopeful = [
        removed
        for removed in question.removals
        if judge.above(None, SLACK) and judge.may_be_near_optimum(removed, CLOSE)
    ]
    for removed in sorted(hopeful, key=_moves)[:MAX_SEARCHED_SETS]:
        best = judge.better(best, judge(removed, question.search))
    return best


def _searched(
    best: ConsolidationProposal, question: ConsolidationContext, judge: _ProposalEvaluator
) -> ConsolidationProposal:
    """The same nodes with the cheapest replacements that effort finds."""
    answer = judge(best.candidates, question.search)
    return answer if isinstance(answer, ConsolidationProposal) and answer.saving > best.saving else best


def _moves(candidates: Sequence[Candidate]) -> int:
    return sum(len(candidate.pods) for candidate in candidates)


def _together(thinned: Sequence[Candidate], judge: _ProposalEvaluator) -> ConsolidationProposal | None:
    """As many of them as a simulation confirms: all at once, or else by halves."""
    best: ConsolidationProposal | None = None
    parts = [tuple(thinned)] if thinned else []
    while parts and judge.asked < MAX_SIMULATIONS // 2:
        part = parts.pop(0)
        answer = judge((*best.candidates, *part) if best else part)
        better = isinstance(answer, ConsolidationProposal) and (best is None or answer.saving > best.saving + 1e-9)
        if (
            isinstance(answer, ConsolidationProposal)
            and better
            and (len(part) < MAX_UNSPLIT_NODES or not answer.plan.nodes)
        ):
            best = answer
        elif len(part) > 1:
            middle = (len(part) + 1) // 2
            parts[:0] = [part[:middle], part[middle:]]
    return best


def _spot_to_spot(planned: PlannedNode, replaced: int, enabled: bool) -> RejectedConsolidation | None:
    if not enabled:
        return RejectedConsolidation("SPOT_TO_SPOT_OFF", SPOT_TO_SPOT_OFF)
    types = {offering.instance_type for offering in planned.offerings}
    if replaced == 1 and len(types) < SPOT_CHOICES:
        return RejectedConsolidation("SPOT_INFLEXIBLE", SPOT_INFLEXIBLE.format(needed=SPOT_CHOICES, types=len(types)))
    return None
