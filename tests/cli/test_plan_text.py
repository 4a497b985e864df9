"""What people read: counts that add up, reasons once, and nothing wider than the terminal."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.cli.plan_json import as_json
from dovetail.cli.plan_text import as_text
from dovetail.planner.plan import Cost, Funnel, FunnelStep, OfferingOption, Placement, Plan, PlannedNode, Unschedulable

CHOICE = OfferingOption(instance_type="m5.large", zone="ap-northeast-2a", capacity_type="on-demand", price=0.118)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def _node(name: str, pods: tuple[str, ...], **requests: int) -> PlannedNode:
    return PlannedNode(name=name, pool="default", offerings=(CHOICE,), requirements=(), requests=requests, pods=pods)


def _plan(*planned_nodes: PlannedNode, refused: dict[str, Unschedulable] | None = None) -> Plan:
    places = {pod: Placement(new_node=planned.name) for planned in planned_nodes for pod in planned.pods}
    places |= {pod: Placement(unschedulable=why) for pod, why in (refused or {}).items()}
    return Plan(placements=places, nodes=planned_nodes, cost=Cost(per_hour=0.118 * len(planned_nodes)))


def _why(**pools: Funnel) -> Unschedulable:
    return Unschedulable(code="LIMIT_REACHED", message="m", remedy="raise spec.limits", pools=pools)


def _funnel(words: str = "cpu limit (0 left)") -> Funnel:
    steps = (
        FunnelStep(clause="cpu 1", left=5),
        FunnelStep(clause="memory 1Gi", left=5),
        FunnelStep(clause=words, left=0),
    )
    return Funnel(
        start=9,
        steps=steps,
        code="LIMIT_REACHED",
        emptied_by=words,
        remedy="raise spec.limits",
        nearest=CHOICE,
        nearest_lacks="cpu 1",
    )


def test_nodes_that_are_alike_are_one_row_with_what_is_on_all_of_them() -> None:
    one = _node("m-1", ("default/web-0", "default/web-1"), cpu=1500, memory=2**30)
    other = _node("m-2", ("default/web-2",), cpu=500, memory=2**30)
    heads, row = (line.split() for line in as_text(_plan(one, other)).splitlines()[:2])
    table = dict(zip([*heads[:5], "$/H", *heads[7:]], row, strict=False))
    assert (table["N"], table["PODS"], table["CPU"], table["MEMORY"]) == ("2", "3", "2", "2.0Gi")
    assert row[-2:] == ["3", "web"]


def test_what_is_paid_for_another_zone_is_reported() -> None:
    plan = _plan(_node("m-1", ("default/web-0",)))
    dearer = replace(plan, cost=replace(plan.cost, for_zones=0.0117))
    assert "includes $0.0117/h for spreading over 1 zone" in as_text(dearer)
    assert as_json(dearer, consolidating=False)["cost"]["forZones"] == 0.0117
    assert "of it" not in as_text(plan) and "forZones" not in as_json(plan, consolidating=False)["cost"]


def test_of_a_workload_that_fits_in_part_it_is_reported_how_many_of_how_many() -> None:
    placed = _node("m-1", tuple(f"default/web-{number}" for number in range(20)))
    left = {f"default/web-{number}": _why(default=_funnel()) for number in range(20, 50)}
    assert """
no node for 30 pods: 30 of 50 default/web
  LIMIT_REACHED (admin), NodePool default: raise spec.limits
  NodePool default: 9 offerings, 5 left by cpu 1, none left by cpu limit (0 left)
    nearest: m5.large in ap-northeast-2a, $0.1180/h, lacks cpu 1""" in as_text(_plan(placed, refused=left))


def test_pods_whose_claims_have_the_same_trouble_are_reported_together() -> None:
    left = {
        f"default/db-{number}": Unschedulable(code="VOLUME_MISSING", message=f"claim data-db-{number} is missing")
        for number in range(3)
    }
    said = as_text(_plan(refused=left))
    assert said.count("no node for") == 1
    assert "no node for 3 pods: 3 default/db\n  VOLUME_MISSING (change): claim data-db-0 is missing" in said


def test_of_many_pools_a_few_are_reported_unless_another_client_asks() -> None:
    refused = {"default/a": _why(**{f"p{number}": _funnel() for number in range(8)})}
    assert "and 3 NodePools more, see -v" in as_text(_plan(refused=refused))
    assert "NodePool p7: 9 offerings" in as_text(_plan(refused=refused), verbose=True)


def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    refused = {"default/a": _why(default=_funnel(f"topology.kubernetes.io/zone In [{', '.join(['zone'] * 20)}]"))}
    said = as_text(_plan(refused=refused))
    assert max(map(len, said.splitlines())) <= 80
    assert " ".join(said.split()).count("zone,") == 19, "nothing is lost"


def test_what_nodes_are_for_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    names = ("default/a-rather-long-name-0", "default/another-rather-long-name-0", "default/one-more-long-name-0")
    heads, *rows = as_text(_plan(_node("m-1", names))).splitlines()[:3]
    at = heads.index("FOR")
    assert [row[at:] for row in rows] == ["a-rather-long-name,", "another-rather-long-name,"]


def test_prices_say_where_they_are_from() -> None:
    said = as_text(_plan(_node("m-1", ("default/a",))), sources={CHOICE: "observed 2022-05"})
    assert "\n  the prices: observed 2022-05" in said


def test_a_price_that_nothing_knows_is_not_nothing() -> None:
    known = _node("m-1", ("default/a",))
    unknown = replace(known, name="m-2", pods=("default/b",), offerings=(replace(CHOICE, price=None),))
    assert "\nan unknown price, 1 node" in as_text(_plan(unknown))
    plan = replace(_plan(known, unknown), cost=Cost(per_hour=0.118))
    assert "\nat least $0.1180 an hour, $86.14 a month, 2 nodes\nnot counted: 1 node" in as_text(plan)
    assert as_json(plan, consolidating=False)["cost"]["unpriced"] == 1
