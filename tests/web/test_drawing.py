"""Blocks, autoscalers and figures as they are drawn: sizes are capacities, texts are escaped, unknown has no number."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.controllers.history.decisions import Decision
from dovetail.model.kinds.nodepool import NodePool
from dovetail.planner.plan import Funnel, FunnelStep
from dovetail.view.decisions import summary_of
from dovetail.view.model import (
    NANO,
    BudgetView,
    FleetView,
    HourlyPrice,
    LowerBound,
    Money,
    NodePhase,
    NodeView,
    PodView,
    PoolView,
    Sum,
    Totals,
    WatchHealth,
)
from dovetail.web import figures
from dovetail.web.autoscaler_pages import (
    hpa_facts,
    metric_bars,
    metric_lines,
    recommendation_lines,
    replicas_bar,
    vpa_facts,
)
from dovetail.web.blocks import block
from dovetail.web.budget_pages import allowed
from dovetail.web.fleet_page import controls, now_panel
from dovetail.web.funnel import funnels
from dovetail.web.layout import fleet_figures, health, table
from dovetail.web.manifest import without_secrets
from dovetail.web.markup import tag, text
from dovetail.web.page_language import page_language
from dovetail.web.palette import Palette
from dovetail.web.series import Point, chart
from dovetail.web.view_options import ViewOptions, comfortable_zoom, view_options_of

T = page_language("en")
GIB = 1 << 30
START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "\"><script>alert('x')</script>"


def a_node(cpu: int = 4, **changes: Any) -> NodeView:
    amounts = {"cpu": cpu * 1000, "memory": cpu * 4 * GIB, "pods": 58}
    fields: dict[str, Any] = {
        "name": "n",
        "claim": None,
        "has_node": True,
        "state": NodePhase.READY,
        "reason": "",
        "until": None,
        "pool": "default",
        "group": None,
        "zone": "a",
        "instance_type": "m5.xlarge",
        "capacity_type": "on-demand",
        "architecture": "amd64",
        "price": HourlyPrice(0.192, "list"),
        "capacity": amounts,
        "allocatable": amounts,
        "requests": {"cpu": 1000, "memory": GIB, "pods": 1},
        "usage": None,
        "pods": (
            PodView(
                namespace="shop",
                name="p",
                uid="u",
                workload="Pod/p",
                phase="Running",
                requests={"cpu": 1000, "memory": GIB},
            ),
        ),
        **changes,
    }
    return NodeView(**fields)


def side(node: NodeView, zoom: str = "l") -> int:
    found = re.search(r'<svg width="(\d+)" height="(\d+)"', block(node, ViewOptions(zoom=zoom), Palette(), T))
    assert found is not None and found[1] == found[2]
    return int(found[1])


def test_the_area_of_a_block_is_the_capacity_of_its_node() -> None:
    small, large = side(a_node(4)), side(a_node(16))
    assert abs(large**2 / small**2 - 4) < 0.1


def test_a_block_is_filled_by_requests_and_has_a_line_only_where_usage_is_known() -> None:
    plain = block(a_node(), ViewOptions(zoom="l"), Palette(), T)
    assert 'class="c0"' in plain and 'class="use"' not in plain
    assert 'class="use"' in block(a_node(usage={"cpu": 500, "memory": GIB}), ViewOptions(zoom="l"), Palette(), T)
    unknown = block(a_node(requests=None, pods=()), ViewOptions(zoom="l"), Palette(), T)
    assert 'class="c0"' not in unknown and "unknown" in unknown


def test_no_text_of_the_cluster_becomes_markup() -> None:
    hostile = a_node(name=HOSTILE, pool=HOSTILE, zone=HOSTILE, instance_type=HOSTILE, reason=HOSTILE)
    drawn = block(hostile, ViewOptions(zoom="xl"), Palette(), T)
    assert "<script" not in drawn and drawn.count("&lt;script&gt;") >= 4
    steps = (FunnelStep(clause=HOSTILE, left=0),)
    funnel = Funnel(start=1, code="NO_TYPE_FITS", emptied_by=HOSTILE, remedy=HOSTILE, steps=steps)
    assert "<script" not in funnels({HOSTILE: funnel}, T)


def test_view_options_that_a_link_does_not_know_are_the_usual_ones() -> None:
    options = view_options_of({"group": "nonsense", "zoom": "99", "filter": "x" * 500, "colour": HOSTILE}, "en")
    assert (options.group, options.zoom, options.colour, len(options.filter)) == ("pool", "m", "namespace", 200)
    assert options.query(group="zone").startswith("?group=zone")


def test_the_zoom_follows_the_size_of_the_fleet() -> None:
    few = {str(number): a_node(2) for number in range(3)}
    many = {str(number): a_node(16) for number in range(2000)}
    assert (comfortable_zoom(few), comfortable_zoom(many)) == ("xxl", "xs")


def test_an_unknown_amount_is_a_word() -> None:
    assert figures.dollars(None, T) == figures.percent(None, T) == figures.memory(None, T) == "unknown"
    assert figures.money(Money(0, 2, 2), T) == "unknown"
    assert [figures.dollars(amount, T) for amount in (-1e-9, -0.5, 12.5)] == ["$0.0000", "-$0.5000", "$12.50"]
    assert figures.money(Money(5 * 10**8, 2, 1), T) == "≥ $0.5000"
    assert figures.monthly(Money(10**9, 1, 0), T) == "$730"
    assert [figures.span(seconds) for seconds in (5, 65, 3700, 90000)] == ["5s", "1m 5s", "1h 1m", "1d 1h"]


HPA: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 10,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
            },
            {
                "type": "Pods",
                "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "9"}},
            },
        ],
    },
    "status": {
        "currentReplicas": 6,
        "desiredReplicas": 8,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 93}}}],
        "conditions": [{"type": "ScalingLimited", "status": "True", "reason": "TooMany", "message": HOSTILE}],
    },
}


def test_an_hpa_shows_what_is_used_beside_its_target_and_what_is_not_measured_as_unknown() -> None:
    assert metric_lines(HPA["spec"], HPA["status"], T) == ["cpu 93% / 70%", "rps unknown / 9"]
    drawn = replicas_bar(HPA["spec"], HPA["status"], T)
    assert "6 → 8 (2 to 10 allowed)" in drawn and 'width="50.0"' in drawn
    assert "unknown" in replicas_bar(HPA["spec"], {}, T)
    assert "<script" not in hpa_facts(HPA, T)


def test_a_vpa_shows_its_recommendation_or_that_there_is_none() -> None:
    containers = [{"containerName": "c", "target": {"cpu": "250m"}, "lowerBound": {"cpu": "100m"}}]
    vpa = {"metadata": {"name": "v"}, "status": {"recommendation": {"containerRecommendations": containers}}}
    assert recommendation_lines(vpa, T) == ["c: cpu 250m (100m … unknown)"]
    assert recommendation_lines({"metadata": {"name": "v"}}, T) == ["no recommendation yet"]


def test_a_manifest_has_no_secret_and_keeps_labels_of_any_name() -> None:
    container = {"name": "c", "env": [{"name": "A", "value": "s3cret"}], "args": ["--x"], "command": ["y"]}
    last = {"kubectl.kubernetes.io/last-applied-configuration": "s3cret"}
    labels = {"data": "kept"}
    obj = {
        "metadata": {"labels": labels, "annotations": last, "managedFields": []},
        "spec": {"containers": [container], "userData": "s3cret"},
        "data": {"k": "s3cret"},
    }
    shown = without_secrets(obj)
    assert "s3cret" not in str(shown) and "managedFields" not in shown["metadata"]
    assert shown["metadata"]["labels"] == labels
    assert shown["spec"]["containers"][0]["env"] == [{"name": "A", "value": "(hidden)"}]


def test_a_nodeclaim_without_a_node_is_drawn_with_what_it_was_created_for() -> None:
    claim = a_node(has_node=False, pods=(), state=NodePhase.JOINING, requests={"cpu": 3000, "memory": 8 * GIB})
    assert 'class="planned"' in block(claim, ViewOptions(zoom="l"), Palette(), T)
    assert 'class="planned"' not in block(a_node(), ViewOptions(zoom="l"), Palette(), T)


def test_a_node_whose_requests_or_capacity_are_unknown_is_not_drawn_as_empty() -> None:
    for unknown in (a_node(requests=None, pods=()), a_node(capacity={}, allocatable={}, pods=())):
        assert 'class="unread"' in block(unknown, ViewOptions(zoom="l"), Palette(), T)
    assert 'class="unread"' not in block(a_node(requests={}, pods=()), ViewOptions(zoom="l"), Palette(), T)


def decision(name: str, kind: str, second: int, evictions: int = 0) -> Decision:
    return Decision(id=name, kind=kind, time=f"2026-01-01T00:00:{second:02}Z", summary=name, evictions=evictions)


def test_every_kind_of_decision_that_changes_the_fleet_is_marked() -> None:
    kinds = ("provision", "disrupt", "end", "unhealthy", "scale-up", "scale-down", "refuse", "safe-mode", "drift-stop")
    decisions = [decision(f"d-{kind}", kind, second) for second, kind in enumerate((*kinds, "keep"))]
    drawn = chart([Point(START.timestamp(), 1.0, 1, 0, 1)], decisions, START, history=True)
    assert [mark.kind for mark in drawn.marks] == list(kinds)


def test_a_disruption_that_was_undone_evicted_nothing() -> None:
    decisions = [decision("d-1", "disrupt", 1, 5), decision("d-1", "undo", 2), decision("d-2", "disrupt", 3, 2)]
    points = [Point(START.timestamp(), 1.0, 1, 0, 1)]
    assert chart(points, decisions, START + timedelta(minutes=1), history=True).evictions == [0, 2]


def test_a_window_of_a_budget_that_is_shorter_than_an_hour_is_in_the_calendar() -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "disruption": {
                "budgets": [{"nodes": "0", "schedule": "15 9 * * *", "duration": "30m", "reasons": ["Drifted"]}]
            }
        },
    }
    pool = msgspec.convert(body, NodePool)
    drifted = allowed(pool, "Drifted", 10, START)
    assert len(drifted) == 7 * 144
    assert [step for step, nodes in enumerate(drifted) if nodes == 0] == [
        144 * day + step for day in range(7) for step in (56, 57, 58)
    ]  # 09:20, 09:30 and 09:40
    assert set(allowed(pool, "Empty", 10, START)) == {None}


def test_a_metric_has_a_bar_only_where_it_is_measured() -> None:
    drawn = metric_bars(HPA["spec"], HPA["status"], T)
    assert drawn.count("<svg") == 1 and 'class="over"' in drawn  # 93 of 70; rps is unknown


def test_a_vpa_stands_beside_what_its_pods_request_and_use() -> None:
    containers = [{"containerName": "c", "target": {"cpu": "250m", "memory": "1Gi"}, "upperBound": {"cpu": "1"}}]
    vpa = {"metadata": {"name": "v"}, "status": {"recommendation": {"containerRecommendations": containers}}}
    requests = {"p1": {"c": {"cpu": 500}}, "p2": {"c": {"cpu": 500}}}
    used = {"p1": {"c": {"cpu": 100}}, "p2": {"c": {"cpu": 300}}, "of-another": {"c": {"cpu": 9000}}}
    cells = re.findall(r"<td[^>]*>(.*?)</td>", vpa_facts(vpa, requests, used, T))
    assert [re.sub("<[^>]*>", "", cell) for cell in cells[:9]] == [
        *("c", "cpu", "0.5", "0.2", "0.3", "unknown", "0.25", "1", "")
    ]
    assert [re.sub("<[^>]*>", "", cell) for cell in cells[10:15]] == ["memory", "none", "unknown", "unknown", "unknown"]
    unmeasured = re.findall(r"<td[^>]*>(.*?)</td>", vpa_facts(vpa, {}, None, T))
    assert unmeasured[2:5] == ["unknown"] * 3
    assert "No recommendation is known." in vpa_facts({"metadata": {"name": "v"}}, {}, None, T)


def test_a_decision_whose_time_cannot_be_read_is_not_drawn() -> None:
    odd = Decision(id="d-odd", kind="provision", time="yesterday", summary="")
    drawn = chart([Point(START.timestamp(), 1.0, 1, 0, 1)], [odd, decision("d-1", "end", 1)], START, history=True)
    assert [mark.id for mark in drawn.marks] == ["d-1"]


def test_a_pod_with_room_for_it_has_the_name_of_its_workload() -> None:
    pod = PodView(
        namespace="shop",
        name="p",
        uid="u",
        workload="Deployment/inflate",
        phase="Running",
        requests={"cpu": 0, "memory": 6 * GIB},
    )
    node = a_node(pods=(pod,), requests=pod.requests)
    assert re.findall(r'<text class="pod"[^>]*>(.*?)</text>', block(node, ViewOptions(zoom="xxl"), Palette(), T)) == [
        "inflate"
    ]
    assert "<text" not in block(node, ViewOptions(zoom="m"), Palette(), T)
    long = msgspec.structs.replace(pod, workload=f"Deployment/{HOSTILE * 9}")
    drawn = block(a_node(pods=(long,), requests=pod.requests), ViewOptions(zoom="xxl"), Palette(), T)
    assert "<script" not in drawn and "…</text>" in drawn


def test_a_nodeclaim_of_unknown_size_is_large_enough_to_be_seen_and_marked() -> None:
    claim = a_node(has_node=False, state=NodePhase.LAUNCHING, capacity={}, allocatable={}, requests=None, pods=())
    assert side(claim) == side(a_node(2)) and 'class="unread"' in block(claim, ViewOptions(zoom="l"), Palette(), T)


def test_without_a_nodepool_the_page_says_that_nothing_is_launched() -> None:
    nodes = {"node/n": a_node()}
    said = 'data-hint="no-nodepool"'
    assert said in now_panel(FleetView(nodes=nodes), START, T)
    assert said not in now_panel(FleetView(nodes=nodes, pools={"p": PoolView(name="p", ready=True)}), START, T)
    unread = WatchHealth(unread={"nodepools.karpenter.sh": "not served"})
    assert said not in now_panel(FleetView(nodes=nodes, health=unread), START, T)


def test_a_nodepool_that_is_not_ready_is_named_on_every_page() -> None:
    pools = {name: PoolView(name=name, ready=False, problem=HOSTILE) for name in ("a", "b", "c", "d")}
    view = FleetView(
        pools={**pools, "ready": PoolView(name="ready", ready=True), "new": PoolView(name="new", ready=None)}
    )
    drawn = health(view, T)
    assert re.findall(r'href="/nodepool/(\w+)"', drawn) == ["a", "b", "c"] and "1 more" in drawn
    assert "<script" not in drawn
    assert "notice" not in health(FleetView(pools={"new": view.pools["new"], "ready": view.pools["ready"]}), T).replace(
        "health-notices", ""
    )


def test_a_node_on_its_way_shows_how_long_it_has_been_and_how_long_it_may_be() -> None:
    until = START + timedelta(minutes=15)
    claim = a_node(has_node=False, state=NodePhase.JOINING, pods=(), created=START, until=until)
    drawn = now_panel(FleetView(nodes={"nodeclaim/n": claim}), START, T)
    assert f'data-since="{START.isoformat()}"' in drawn and f'data-until="{until.isoformat()}"' in drawn
    assert 'data-late="overdue"' in drawn


def test_a_narrow_block_of_unknown_price_has_a_sign_that_is_not_cut_off() -> None:
    node = msgspec.structs.replace(a_node(4), price=None)
    assert "> $?<" in block(node, ViewOptions(zoom="m"), Palette(), T)
    assert "price unknown<" in block(node, ViewOptions(zoom="xxl"), Palette(), T)


def test_the_bound_of_another_fleet_is_not_shown_and_its_words_are_the_viewers() -> None:
    paid = Sum(1, 0, 0, 0, Money(2 * NANO, 1, 0))
    korean = page_language("ko")
    current = Totals(fleet=paid, bound=LowerBound(1.5, ("at packaged prices",), 2.0))
    drawn = fleet_figures(FleetView(totals=current), korean)
    assert "$1.5000" in drawn and "at packaged prices" not in drawn
    for other in (LowerBound(1.5, (), 4.0), LowerBound(2.5, (), 2.0)):
        assert "being computed" in fleet_figures(FleetView(totals=Totals(fleet=paid, bound=other)), T)
    empty = fleet_figures(FleetView(totals=Totals(fleet=paid, bound=LowerBound(0.0, (), 2.0))), T)
    assert "$0.0000" in empty and "no pod needs a node" in empty


def test_the_size_of_blocks_goes_one_step_each_way_and_no_further() -> None:
    drawn = controls(ViewOptions(zoom="l"), T)
    steps = re.findall(r'href="/\?zoom=(\w+)" aria-label="(\w+)"', drawn)
    assert steps == [("m", "Smaller"), ("xl", "Larger")]
    assert 'aria-label="Larger"' not in controls(ViewOptions(zoom="xxl"), T)
    assert 'aria-label="Smaller"' not in controls(ViewOptions(zoom="xs"), T)
    assert "Larger" not in controls(ViewOptions(zoom="l", form="table"), T)


def test_a_table_with_long_texts_keeps_its_roles_when_a_small_screen_stacks_it() -> None:
    drawn = table("Events", [("Age", "num"), ("Message", "long")], [["1s", "text"]], "")
    roles = re.findall(r'role="(\w+)"', drawn)
    assert roles == ["region", "table", "rowgroup", "row", *["columnheader"] * 2, "rowgroup", "row", "cell", "cell"]
    assert (
        'data-label="Age"' in drawn and "role=" not in table("Pods", [("Pod", "")], [["p"]], "").partition("<table")[2]
    )


def test_a_disruption_is_reported_by_what_goes_what_comes_and_what_it_saves() -> None:
    facts: dict[str, Any] = {"id": "d-1", "kind": "disrupt", "time": "", "reason": "Underutilized", "before": 0.3}
    facts |= {"summary": "consolidation delete, terminating 1 nodes ip-1.ap.internal/m5.large/spot", "cost": 0.1}
    removal = Decision(**facts, removed=("ip-1.ap-northeast-2.compute.internal",), evictions=1)
    assert summary_of(removal) == "Underutilized: remove ip-1; 1 pod moves; saves $0.2000/h"
    assert (
        page_language("ko").recorded(summary_of(removal))
        == "Underutilized: ip-1 제거; 파드 1개 이동; 시간당 $0.2000 절감"
    )
    assert summary_of(decision("as recorded", "provision", 1)) == "as recorded"


def test_counts_of_recorded_sentences_are_singular_or_plural() -> None:
    assert T.recorded("1 node(s) for 5 pod(s) at $0.1180/h") == "1 node for 5 pods at $0.1180/h"
    assert T.recorded("1 pod(s) are unschedulable: x") == "1 pod is unschedulable: x"


def test_a_text_cannot_turn_the_direction_of_writing() -> None:
    """An override shows `gnp.exe` as `exe.png`; right-to-left letters need none."""
    shown = text("\u202egnp.exe שלום 한국어")
    assert shown == "\N{REPLACEMENT CHARACTER}gnp.exe שלום 한국어"
    assert "\u202e" not in block(a_node(reason="\u202egnp.exe"), ViewOptions(zoom="xl"), Palette(), T)
    assert tag("a", title="\u2066x") == '<a title="\N{REPLACEMENT CHARACTER}x"></a>'


def test_a_block_wider_than_a_small_screen_can_be_drawn_smaller() -> None:
    huge, small = (block(a_node(cpu), ViewOptions(zoom="xl"), Palette(), T) for cpu in (448, 4))
    width = re.search(r'<svg width="(\d+)"', huge)
    assert width is not None and f'viewBox="0 0 {width[1]} {width[1]}"' in huge
    assert "viewBox" not in small


def test_the_facts_of_an_autoscaler_have_names() -> None:
    names = [re.findall(r"<dt>(.*?)</dt>", drawn) for drawn in (hpa_facts(HPA, T), vpa_facts(HPA, {}, None, T))]
    assert names == [["Target", "Replicas", "Metrics: used / target"], ["Target", "Mode"]]


@pytest.mark.parametrize(
    ("budget", "english", "korean"),
    [
        (BudgetView("10%"), "10%", "10%"),
        (BudgetView("2", ("Drifted", "Empty")), "2 of reason Drifted, Empty", "이유 Drifted, Empty: 2"),
        (
            BudgetView("0", (), "0 9 * * 1-5", "8h"),
            "0 from 0 9 * * 1-5 for 8h",
            "0 9 * * 1-5부터 8h 동안 0",
        ),
        (
            BudgetView("1", ("Drifted",), "@daily", "1h"),
            "1 of reason Drifted from @daily for 1h",
            "이유 Drifted: @daily부터 1h 동안 1",
        ),
    ],
)
def test_a_budget_speaks_the_language_of_the_viewer(budget: BudgetView, english: str, korean: str) -> None:
    assert (budget.words(T), budget.words(page_language("ko"))) == (english, korean)
