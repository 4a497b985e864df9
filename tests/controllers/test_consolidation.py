"""Which nodes are consolidated: only for a real saving, within budgets, and never for something dearer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dovetail.controllers.disruption import balanced, consolidation
from dovetail.controllers.disruption.consolidation import (
    ConsolidationContext,
    ConsolidationProposal,
    RejectedConsolidation,
    eviction_cost,
)
from dovetail.controllers.disruption.types import Candidate, Command, DisruptionReason, legacy_log_text
from dovetail.model.instance_type import InstanceType
from dovetail.model.pods import Pod
from dovetail.planner.plan import Cost, OfferingOption, Plan, PlannedNode


def candidate(name: str, price: float | None, pods: int = 1, kind: str = "on-demand") -> Candidate:
    return Candidate(
        node=name,
        claim=name,
        provider_id=name,
        pool="default",
        instance_type="m.large",
        zone="a",
        capacity_type=kind,
        price=price,
        cost=1.0 + pods,
        pods=tuple(f"default/{name}-{i}" for i in range(pods)),
    )


def planned_node(*prices: float, kind: str = "on-demand") -> PlannedNode:
    offerings = tuple(
        OfferingOption(instance_type=f"t{i}", zone="a", capacity_type=kind, price=price)
        for i, price in enumerate(prices)
    )
    return PlannedNode(name="m", pool="default", offerings=offerings, requirements=(), requests={}, pods=())


def plan(*planned_nodes: PlannedNode) -> Plan:
    return Plan(placements={}, nodes=planned_nodes, cost=Cost(per_hour=sum(each.price for each in planned_nodes)))


def test_a_node_whose_pods_fit_elsewhere_is_removed() -> None:
    found = consolidation.evaluate([candidate("a", 0.1)], lambda _: plan(), spot_to_spot=False)
    assert isinstance(found, ConsolidationProposal) and found.saving == pytest.approx(0.1) and found.evictions == 1


def test_equal_cost_moves_nothing() -> None:
    found = consolidation.evaluate([candidate("a", 0.1)], lambda _: plan(planned_node(0.1)), spot_to_spot=False)
    assert isinstance(found, RejectedConsolidation) and found.code == "NOT_CHEAPER"


def test_a_replacement_keeps_only_offerings_that_keep_the_saving() -> None:
    found = consolidation.evaluate(
        [candidate("a", 0.2)], lambda _: plan(planned_node(0.1, 0.15, 0.3)), spot_to_spot=False
    )
    assert isinstance(found, ConsolidationProposal)
    (launched,) = found.plan.nodes
    assert [offering.price for offering in launched.offerings] == [0.1, 0.15]
    assert {
        "key": "node.kubernetes.io/instance-type",
        "operator": "In",
        "values": ["t0", "t1"],
    } in launched.requirements


def test_several_nodes_may_be_replaced_by_several_others() -> None:
    found = consolidation.evaluate(
        [candidate("a", 0.4), candidate("b", 0.4)],
        lambda _: plan(planned_node(0.2), planned_node(0.3)),
        spot_to_spot=False,
    )
    assert isinstance(found, ConsolidationProposal) and found.saving == pytest.approx(0.3)


def test_spot_replaces_spot_only_with_the_gate_and_with_enough_types() -> None:
    many = planned_node(*(0.01 * i for i in range(1, 20)), kind="spot")
    spot = [candidate("a", 0.5, kind="spot")]
    off = consolidation.evaluate(spot, lambda _: plan(many), spot_to_spot=False)
    few = consolidation.evaluate(spot, lambda _: plan(planned_node(0.1, kind="spot")), spot_to_spot=True)
    on = consolidation.evaluate(spot, lambda _: plan(many), spot_to_spot=True)
    assert isinstance(off, RejectedConsolidation) and off.code == "SPOT_TO_SPOT_OFF"
    assert isinstance(few, RejectedConsolidation) and few.code == "SPOT_INFLEXIBLE"
    assert isinstance(on, ConsolidationProposal)


def test_a_spot_node_that_replaces_one_is_among_the_cheapest_fifteen_so_that_it_may_stay() -> None:
    """With a wider choice the cloud could launch an expensive one, for which fifteen cheaper ones would exist again."""
    many = planned_node(*(0.01 * i for i in range(1, 31)), kind="spot")
    alone = consolidation.evaluate([candidate("a", 0.5, kind="spot")], lambda _: plan(many), spot_to_spot=True)
    both = [candidate("a", 0.5, kind="spot"), candidate("b", 0.5, kind="spot")]
    together = consolidation.evaluate(both, lambda _: plan(many), spot_to_spot=True)
    assert isinstance(alone, ConsolidationProposal) and isinstance(together, ConsolidationProposal)
    assert [offering.price for offering in alone.plan.nodes[0].offerings] == [0.01 * i for i in range(1, 16)]
    assert len(together.plan.nodes[0].offerings) == 30


def test_a_replacement_keeps_the_min_values_of_its_nodepool_or_is_rejected() -> None:
    insists = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [], "minValues": 2}
    wanted = msgspec.structs.replace(planned_node(0.1, 0.15, 0.3), requirements=(insists,))
    found = consolidation.evaluate([candidate("a", 0.2)], lambda _: plan(wanted), spot_to_spot=False)
    assert isinstance(found, ConsolidationProposal)
    assert {**insists, "values": ["t0", "t1"]} in found.plan.nodes[0].requirements
    found = consolidation.evaluate([candidate("a", 0.12)], lambda _: plan(wanted), spot_to_spot=False)
    assert isinstance(found, RejectedConsolidation) and found.code == "NOT_CHEAPER"


def test_a_replacement_keeps_the_min_values_of_any_label() -> None:
    insists = {"key": "example.com/family", "operator": "Exists", "minValues": 2}
    wanted = msgspec.structs.replace(planned_node(0.1, 0.15, 0.3), requirements=(insists,))
    families = {"t0": "c", "t1": "c", "t2": "m"}
    sold = {
        name: InstanceType(name=name, capacity={}, overhead={}, labels={"example.com/family": (family,)}, offerings=())
        for name, family in families.items()
    }
    found = consolidation.evaluate([candidate("a", 0.2)], lambda _: plan(wanted), spot_to_spot=False, types=sold)
    assert isinstance(found, RejectedConsolidation) and found.code == "NOT_CHEAPER", "what is cheaper is of one family"
    found = consolidation.evaluate([candidate("a", 0.4)], lambda _: plan(wanted), spot_to_spot=False, types=sold)
    assert isinstance(found, ConsolidationProposal)


def test_a_node_of_unknown_price_is_never_consolidated() -> None:
    assert consolidation.rank([candidate("a", None), candidate("b", 0.1)]) == [candidate("b", 0.1)]


def test_the_balanced_policy_weighs_saving_against_disruption() -> None:
    assert balanced.weigh(0.1, 2.0, cost=1.0, disturbance=10.0).approved
    assert not balanced.weigh(0.1, 3.0, cost=1.0, disturbance=10.0).approved
    assert not balanced.weigh(0.1, 1.0, cost=0.0, disturbance=10.0).approved
    assert balanced.weigh(0.1, 2.0, cost=1.0, disturbance=10.0).message() == (
        "score 0.50 >= threshold 0.50 (k: 2, savings 10.0%, disruption 20.0%)"
    )


def test_the_log_has_karpenters_messages() -> None:
    command = Command(
        id="d-1", reason=DisruptionReason.UNDERUTILIZED, kind="single", candidates=(candidate("n", 0.1),), saving=0.1
    )
    assert command.log_text() == ("Underutilized/d-1: delete: nodepools=[default]: [n] (savings: $0.10)")
    assert legacy_log_text(command) == "consolidation delete, terminating 1 nodes n/m.large/on-demand"


@pytest.mark.parametrize(
    ("policy", "method"), [("when_empty_or_underutilized", "consolidation"), ("when_empty", "emptiness")]
)
def test_an_empty_node_is_a_consolidation_where_its_nodepool_consolidates(policy: str, method: str) -> None:
    """After a scale-down that happens to empty a node, the grep for `consolidation delete` finds its line too."""
    command = Command(
        id="d-1",
        reason=DisruptionReason.EMPTY,
        kind="empty",
        candidates=(candidate("n", 0.1),),
        saving=0.1,
        policy=policy,
    )
    assert legacy_log_text(command) == f"{method} delete, terminating 1 nodes n/m.large/on-demand"


@pytest.mark.parametrize(
    ("annotations", "priority", "cost"),
    [
        ({}, 0, 1.0),
        ({"controller.kubernetes.io/pod-deletion-cost": str(2**27)}, 0, 2.0),
        ({"karpenter.sh/disruption-cost": "1.5"}, 0, 1.0),
        ({"karpenter.sh/disruption-cost": str(2**31)}, 0, 1.0),
        ({"karpenter.sh/disruption-cost": str(-(2**31))}, 0, -10.0),
        ({}, 2**31 - 1, 10.0),
    ],
)
def test_the_eviction_cost_of_a_pod_follows_its_priority_and_annotations(
    annotations: dict[str, str], priority: int, cost: float
) -> None:
    import msgspec

    pod = msgspec.convert({"metadata": {"name": "p", "annotations": annotations}, "spec": {"priority": priority}}, Pod)
    assert eviction_cost(pod) == pytest.approx(cost, abs=1e-6)


def question(simulate: consolidation.Simulate, **more: Any) -> ConsolidationContext:
    return ConsolidationContext(**{"simulate": simulate, "search": simulate, "allow": lambda _: True, **more})


def chosen(prices: Sequence[float]) -> list[str]:
    pool = [candidate(f"n{i}", price) for i, price in enumerate(prices)]
    best, _ = consolidation.choose(pool, question(lambda tried: plan() if len(tried) < 3 else None))
    return [candidate.node for candidate in best.candidates] if best else []


def test_the_most_expensive_nodes_are_removed_first_until_pods_would_not_fit() -> None:
    assert chosen([0.1, 0.4, 0.2]) == ["n1", "n2"]


def test_near_a_fresh_fleet_no_pod_is_moved_for_less_than_a_pod_costs() -> None:
    """Ten pods each on two nodes of a dollar; a fresh fleet costs 1.8, so a pod 0.09."""
    pool = [candidate("a", 1.0, pods=10), candidate("b", 1.0, pods=10)]
    kept, stays = consolidation.choose(pool, question(lambda _: plan(planned_node(0.8)), fresh=1.8))
    assert kept is None and {each.code for each in stays.values()} == {"NOT_CHEAPER"}
    moved, _ = consolidation.choose(pool, question(lambda _: plan(planned_node(0.05)), fresh=1.8))
    assert moved is not None


def test_of_sets_that_end_close_to_a_fresh_fleet_the_one_with_the_fewest_moves_is_chosen() -> None:
    many, few, dear = candidate("many", 1.0, pods=9), candidate("few", 0.98, pods=3), candidate("dear", 1.0, pods=1)
    asked = question(lambda _: plan(), removals=((many,), (few,)), fresh=2.0)
    best, _ = consolidation.choose([many, few, dear], asked)
    assert best is not None and best.candidates == (few,)


def test_a_set_that_could_not_be_the_best_even_without_replacements_is_not_planned() -> None:
    """A plan for many pods takes longer than all the rest of a pass."""
    few, more = candidate("few", 1.0, pods=1), tuple(candidate(f"more{i}", 0.2, pods=4) for i in range(5))
    planned: list[Sequence[Candidate]] = []

    def simulate(removed: Sequence[Candidate]) -> Plan:
        planned.append(removed)
        return plan()

    asked = question(simulate, removals=(more,), thinned=(few,), fresh=1.95)
    best, _ = consolidation.choose([few, *more], asked)
    assert best is not None and best.candidates == (few,)
    assert planned and not any(removed == more for removed in planned)


def test_effort_is_spent_on_the_chosen_set_and_only_if_it_needs_a_replacement() -> None:
    one, other = candidate("one", 1.0, pods=1), candidate("other", 0.5, pods=1)
    searched: list[Sequence[Candidate]] = []

    def search(removed: Sequence[Candidate]) -> Plan:
        searched.append(removed)
        return plan(planned_node(0.1))

    asked = question(lambda _: plan(planned_node(0.2)), search=search, removals=((one,), (other,)), fresh=1.4)
    best, _ = consolidation.choose([one, other], asked)
    assert best is not None and best.candidates == (one,) and searched == [(one,)]
    assert best.saving == pytest.approx(0.9)
    free = question(lambda _: plan(), search=search, removals=((one,), (other,)), fresh=1.4)
    consolidation.choose([one, other], free)
    assert searched == [(one,)]
