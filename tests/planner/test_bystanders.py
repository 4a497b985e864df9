"""A spread counts pods that it does not bind. They may go anywhere, once its owners are placed."""

from __future__ import annotations

from .conftest import HOSTNAME, SMALL, ZONE, Solve, node, pods, pool, spread


def test_those_a_spread_only_counts_go_where_they_must(solve: Solve) -> None:
    """Pinned to a zone, they would tip the balance; nobody asks them to keep it."""
    pinned = pods(7, "pinned", cpu="100m", labels={"app": "web"}, nodeSelector={ZONE: "z2"})
    assert not solve(*pods(3, cpu="100m", **spread()), *pinned).unschedulable


def test_those_a_spread_only_counts_share_machines_with_its_owners(solve: Solve) -> None:
    owners = pods(4, cpu="900m", **spread(HOSTNAME))
    others = pods(4, "other", cpu="900m", labels={"app": "web"})
    plan = solve(*owners, *others, pools=(pool(types=(SMALL,)),), deadline=0.1)
    assert len(plan.machines) == 4


def test_a_spread_with_slack_buys_no_machine_for_balance(solve: Solve) -> None:
    standing = (node("n1", "z1", cpu="2"), node("n2", "z2", cpu="4"))
    plan = solve(*pods(4, cpu="900m", **spread(skew=4)), nodes=standing, deadline=0.1)
    assert not plan.machines
