"""Who comes after whom: pods that a spread only counts wait for its owners, unless these have to wait for them."""

from __future__ import annotations

from dovetail.model.instance_type import Offering
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, ZONE, Solve, kind, near, node, pods, pool, spread

_TIER = {"labelSelector": {"matchLabels": {"tier": "x"}}}
_ONE = pods(2, "one", cpu="3", labels={"tier": "x", "app": "one"}, **spread(HOSTNAME, 1, **_TIER))
_TWO = pods(2, "two", cpu="2", labels={"tier": "x", "app": "two"}, **spread(HOSTNAME, 2, **_TIER))
_PLAIN = pods(6, "plain", cpu="500m", labels={"tier": "x"}, **near("podAffinity", HOSTNAME, "one"))


def test_owners_whose_spreads_count_each_other_see_each_other_and_no_pod_else() -> None:
    problem = Problem(Snapshot(pools=(pool(),), pending=(*_ONE, *_TWO, *_PLAIN)))
    unseen = {one.pods[0].rpartition("-")[0]: len(problem.order.foreign(one.kind)) for one in problem.classes}
    assert unseen == {"default/one": 0, "default/two": 0, "default/plain": 2}


def test_co_located_pods_comes_after_owners_that_are_in_a_circle(solve: Solve) -> None:
    """Beside one of them there is room for no pod whom its spread counts, except for those who come later."""
    plan = solve(*_ONE, *_TWO, *_PLAIN)
    assert not plan.unschedulable


def test_the_verifier_lets_pods_wait_in_line_for_those_who_wait_themselves(solve: Solve) -> None:
    """The second are counted by the spread of the first, and the third by that of the second."""
    first = pods(3, "first", cpu="3", labels={"tier": "x"}, **spread(ZONE, 1, **_TIER))
    apps = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["second", "third"]}]}}
    second = pods(2, "second", cpu="2", labels={"tier": "x", "app": "second"}, **spread(HOSTNAME, 1, **apps))
    third = pods(4, "third", cpu="250m", labels={"app": "third"}, **near("podAffinity", HOSTNAME, "second"))
    plan = solve(*first, *second, *third)
    assert not plan.unschedulable


def test_pods_that_come_later_make_no_pod_pay_for_another_zone() -> None:
    """The owners fill the emptiest zone, which is cheapest too; a pod that must go there as well comes after them."""
    offers = tuple(
        Offering(zone=zone, capacity_type="on-demand", price=price)
        for zone, price in (("z1", 0.1), ("z2", 0.11), ("z3", 0.11))
    )
    shop = (kind("only", 16, 64, 0.1, offerings=offers),)
    there = tuple(
        node(f"n-{zone}", zone=zone, cpu="1", pods=pods(3, f"run-{zone}", cpu="300m", labels={"tier": "x"}))
        for zone in ("z2", "z3")
    )
    owners = pods(4, "owner", cpu="3", labels={"tier": "x"}, **spread(ZONE, 2, **_TIER))
    later = pods(7, "later", cpu="250m", labels={"tier": "x"}, nodeSelector={ZONE: "z1"})
    snapshot = Snapshot(pools=(pool(types=shop),), nodes=there, pending=(*owners, *later))
    plan = provision(snapshot, deadline=1.0, optimiser=better_by_work)
    assert not verify(plan, snapshot)
    assert plan.cost.per_hour == 0.1
