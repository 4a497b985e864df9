"""The view as text: every line as wide as asked, unknown as `?`, and the same text for the same fleet."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.language import in_language
from dovetail.language.columns import width_of
from dovetail.tui import figures
from dovetail.tui.body import body
from dovetail.tui.figures import ASCII, UNICODE, bar, fit, fit_middle, printable, wrapped
from dovetail.tui.tables import NODES, PODS, TABLES, TableLook, line, matching, ordered, widths
from dovetail.tui.text import once, problems, totals
from dovetail.view import FleetView, Money, PendingPod, PoolView, WatchHealth
from tests.tui.conftest import NOW, a_node, a_pod, with_totals

LOOK = TableLook(NOW)

NARROW = """\
5 nodes (1 draining, 1 launching)   4 pods   1 pending   Kubernetes v1.36.3
≥$0.3540/hour ≥$258/month   1 price unknown   spot ?   on-demand $0.3540
cpu ████▉····· 49% of 8, ? used   memory █▌········ 16% of 32Gi, ? used

NODEPOOL             NODES   PODS    CPU     MEM    $/HOUR LIMIT       STATE
default                  4      4    3.9     5Gi   $0.3540 60% cpu     ready
spot                     1      0      0       0         ? -           -

NODE             CPU        MEM          PODS TYPE         $/HOUR STATE      AGE
big-xxxxxxxxxxx… ████▊  95% █▎···  25%   1/29 m5.24xlarge $0.1180 ready       5h
claim-1          ?          ?               ? ?                 ? launching   5h
draining-1       █▎···  25% ▋····  12%   1/29 m5.large    $0.1180 draining    5h
ip-10-0-0-10     ███▊·  75% █▎···  25%   2/29 m5.large    $0.1180 ready       5h
spot-1           ·····   0% ·····   0%   0/29 m5.large          ? ready       5h

POD                        CPU    MEM  AGE WHY
shop/api-0                   4    1Gi  42s 디스크가 없는 영역입니다\ufffd[31m\ufffdgnp <s…"""


def test_once_in_80_columns(fleet: FleetView) -> None:
    text = "\n".join(once(fleet, LOOK, 80))
    assert text == NARROW


def test_once_in_200_columns_has_usage_zone_and_reason(fleet: FleetView) -> None:
    lines = list(once(fleet, LOOK, 200))
    header = next(text for text in lines if text.startswith("NODE "))
    assert header.split() == [
        *("NODE", "POOL", "CPU", "CPU", "USED", "MEM", "MEM", "USED", "PODS", "FULLEST"),
        *("TYPE", "CAPACITY", "ZONE", "$/HOUR", "STATE", "AGE", "WHY"),
    ]
    row = next(text for text in lines if text.startswith("draining-1"))
    assert "10%" in row and "ap-northeast-2a" in row and "Underutilized" in row
    assert any("spot" in text and "?" in text for text in lines)


@pytest.mark.parametrize("width", [40, 79, 80, 119, 120, 200])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_no_line_is_wider_than_the_terminal(fleet: FleetView, width: int, language: str) -> None:
    with in_language(language):
        lines = list(once(fleet, LOOK, width, pods=True))
    assert len(lines) > 15
    assert max(map(width_of, lines)) <= width


def test_states_are_in_the_language_of_the_viewer(fleet: FleetView) -> None:
    with in_language("ko"):
        text = line(widths(NODES, 120), fleet.nodes["node/draining-1"], LOOK)
    assert "드레인 중" in text and "draining " not in text


def test_an_unknown_price_is_a_question_mark_and_never_zero(fleet: FleetView) -> None:
    columns = widths(NODES, 80)
    text = line(columns, fleet.nodes["node/spot-1"], LOOK)
    assert " ? ready" in text and "$0" not in text
    assert figures.money(Money(0, 2, 2)) == "?"
    assert figures.money(Money(10**9, 2, 1)) == "≥$1.0000"


def test_the_lower_bound_and_the_gap_are_shown_where_every_price_is_known() -> None:
    view = with_totals(FleetView(nodes={"node/a": a_node("a", (a_pod("p"),))}), bound=0.1)
    assert totals(view, LOOK, 80)[1] == "$0.1180/hour $86.14/month   lower bound $0.1000/hour   at most 18% above it"


def test_a_lost_connection_and_what_may_not_be_read_are_said() -> None:
    health = WatchHealth(
        connected=False,
        problems={"API server": "connection refused"},
        unread={"pods": "not permitted", "nodeclaims.karpenter.sh": "not served"},
        safe_mode="launches fail",
    )
    lost, safe, refused = problems(FleetView(health=health))
    assert lost.startswith("CONNECTION LOST (API server): connection refused")
    assert safe == "safe mode: launches fail"
    assert refused == "cannot be read: pods not permitted"
    with in_language("ko"):  # what is recorded is English, and so is what the observer says of a kind
        assert problems(FleetView(health=health))[2] == "읽을 수 없음: pods 권한 없음"


def test_ascii_where_the_output_has_no_unicode(fleet: FleetView) -> None:
    assert figures.glyphs("latin-1") is ASCII and figures.glyphs("utf-8") is UNICODE
    view = msgspec.structs.replace(fleet, pending={})
    lines = list(once(view, TableLook(NOW, ASCII), 80))
    assert len(lines) > 10 and all(text.isascii() for text in lines)


def test_hostile_text_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\nc\u202ed") == "a\ufffd[2Jb c\ufffdd"


def test_rows_are_filtered_by_words_and_fields(fleet: FleetView) -> None:
    def names(text: str) -> list[str]:
        return sorted(node.name for node in matching(NODES, fleet.nodes.values(), text))

    assert names("pool:spot") == ["spot-1"]
    assert names("SPOT") == ["spot-1"]
    assert names("state:draining type:m5") == ["draining-1"]
    assert names("state:draining pool:spot") == []
    assert names("colour:red") == []
    assert len(names("")) == 5
    assert [row.pod.name for row in matching(PODS, PODS.rows(fleet), "ns:jobs")] == ["batch-1"]


def test_rows_are_sorted_and_unknown_stands_last_either_way(fleet: FleetView) -> None:
    for descending in (False, True):
        found = ordered(NODES, fleet.nodes.values(), "price", descending)
        assert {found[-1].name, found[-2].name} == {"spot-1", "claim-1"}
    assert ordered(NODES, fleet.nodes.values(), "cpu", True)[0].name.startswith("big-")
    for table in TABLES:
        for column in table.columns:
            rows = list(table.rows(fleet))
            assert len(ordered(table, rows, column.name, False)) == len(rows) > 0


def test_the_body_for_programs_has_null_for_unknown(fleet: FleetView) -> None:
    found = msgspec.json.decode(msgspec.json.encode(body(fleet)))
    assert found["totals"]["cost"] == {"perHour": None, "perMonth": None, "known": 0.354, "unpriced": 1}
    assert found["totals"]["lowerBound"] is None
    nodes = {node["name"]: node for node in found["nodes"]}
    assert nodes["spot-1"]["pricePerHour"] is None and nodes["spot-1"]["usage"] is None
    assert nodes["claim-1"]["kind"] == "NodeClaim"
    assert [pod["name"] for pod in nodes["draining-1"]["pods"]] == ["web-3"]
    assert found["pending"][0]["code"] == "VOLUME_ZONE"


@given(st.text(max_size=60), st.integers(1, 30))
def test_cut_text_fits(text: str, columns: int) -> None:
    assert width_of(fit(text, columns)) <= columns
    assert width_of(fit_middle(text, columns)) <= columns


@given(st.text(alphabet="ab 한글é", max_size=80), st.integers(4, 30))
def test_wrapped_text_fits_and_loses_no_letter(text: str, columns: int) -> None:
    lines = wrapped(text, columns)
    assert max(map(width_of, lines)) <= columns
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(st.floats(0, 3), st.integers(1, 40))
def test_a_bar_is_as_long_as_it_should_be(share: float, columns: int) -> None:
    for drawn in (UNICODE, ASCII):
        text = bar(share, columns, drawn)
        assert len(text) == columns
        assert abs(text.count(drawn.full) - min(share, 1) * columns) <= 1


def test_a_recorded_reason_is_in_the_language_of_the_reader() -> None:
    pod = PendingPod(
        namespace="shop",
        name="web",
        uid="u",
        workload="Pod/web",
        requests={"cpu": 1000, "memory": 1 << 30},
        reason="waits for nodeclaim/default-1",
    )
    view = FleetView(pending={pod.key: pod})
    with in_language("ko"):
        lines = list(once(view, LOOK, 100))
    assert any("nodeclaim/default-1을 기다립니다" in line for line in lines)
    assert any("메모리" in line and "이유" in line for line in lines)


def test_pending_pods_are_counted_however_many_states_there_are() -> None:
    pod = PendingPod(
        namespace="shop", name="a", uid="1", workload="Pod/a", requests={}, reason="", code="", decision=""
    )
    view = with_totals(FleetView(pending={"shop/a": pod}))
    states = {"ready": 25, "cordoned": 1, "joining": 5, "launching": 1, "not-ready": 1}
    view = msgspec.structs.replace(view, totals=msgspec.structs.replace(view.totals, states=states))
    assert totals(view, LOOK, 70)[0] == "0 nodes   0 pods   1 pending"
    assert totals(view, LOOK, 80)[0].startswith("0 nodes (1 cordoned, 5 joining")


def test_nodepools_that_are_not_ready_stand_above_the_tables() -> None:
    pools = {name: PoolView(name=name, ready=False, problem="no subnet\x1b[31m") for name in "cab"}
    said = problems(FleetView(pools={**pools, "new": PoolView(name="new", ready=None)}))
    assert said == [f"NodePool {name}: not ready: no subnet\N{REPLACEMENT CHARACTER}[31m" for name in "ab"]
