"""Reports of a prediction, and the limits of --fail-on."""

from __future__ import annotations

import json

import msgspec
import pytest

from dovetail.errors import UserError
from dovetail.language import in_language
from dovetail.offline.diff import limits
from dovetail.offline.diff.prediction import (
    Blocked,
    Eviction,
    Pending,
    PredictedNodeChange,
    PredictedObjectChange,
    PredictedRun,
    PredictedState,
    Prediction,
    Wave,
    summary,
)
from dovetail.offline.diff.report_json import as_json
from dovetail.offline.diff.report_markdown import as_markdown
from dovetail.offline.diff.report_text import as_text, duration

NOW = PredictedState(per_hour=1.0, lower_bound=0.9, nodes=2, pods=10, pending=0, by_pool={"default": (2, 1.0)})
QUIET = PredictedRun(
    start=NOW,
    end=NOW,
    objects=(),
    nodes=(),
    evictions=(),
    waves=(),
    pending=(),
    blocked=(),
    seconds=0.0,
    at_rest=True,
)


def node(
    action: str, claim: str, name: str = "", reason: str = "Drifted", price: float | None = 0.5
) -> PredictedNodeChange:
    return PredictedNodeChange(
        action=action,
        at=60.0,
        claim=claim,
        node=name,
        pool="default",
        instance_type="m5.large",
        zone="us-west-2a",
        capacity_type="on-demand",
        price=price,
        reason=reason,
        detail="AMIDrift" if action == "-" and reason == "Drifted" else "",
    )


def prediction() -> Prediction:
    applied = msgspec.structs.replace(
        QUIET,
        end=PredictedState(per_hour=1.5, lower_bound=1.4, nodes=3, pods=12, pending=2, by_pool={"default": (3, 1.5)}),
        objects=(
            PredictedObjectChange(action="~", object="Deployment shop/web", fields=(("spec.replicas", "10", "12"),)),
        ),
        nodes=(
            node("+", "new-1"),
            node("-", "old-1", "ip-10-0-0-1"),
            node("+", "new-2", reason="Provisioned"),
            node("+", "short"),
            node("-", "short"),
        ),
        evictions=tuple(Eviction(at=61.0, pod=f"shop/web-{number}", node="ip-10-0-0-1") for number in range(3)),
        waves=(
            Wave(
                at=60.0,
                reason="Drifted",
                nodes=("ip-10-0-0-1",),
                pools=("default",),
                replacements=1,
                evictions=3,
                detail="AMIDrift",
                budgets=("default: 10% at once",),
            ),
        ),
        pending=(Pending(pods=("shop/big-0", "shop/big-1"), count=2, code="NO_TYPE_FITS", message="too large"),),
        blocked=(
            Blocked(node="ip-10-0-0-2", pool="default", reason="Drifted", blockers=("pod shop/db-0: a PDB [PDB]",)),
        ),
        seconds=150.0,
    )
    return Prediction(
        without=QUIET, applied=applied, notes=("a note",), market=("sold out: m5.large",), horizon_s=3600.0
    )


def test_counts_tell_added_replaced_removed_and_passing_nodes_apart() -> None:
    counts = summary(prediction())
    assert (counts.added, counts.replaced, counts.removed, counts.passing) == (1, 1, 0, 1)
    assert (counts.evictions, counts.pending, counts.cost_change) == (3, 2, 0.5)


def test_the_text_names_what_changes_and_why() -> None:
    text = as_text(prediction())
    for part in (
        "spec.replicas: 10 → 12",
        "~ sold out: m5.large",
        "~ NodePool default  2 → 3 nodes  $1.0000/h → $1.5000/h",
        "1 x m5.large  ",
        "~  ip-10-0-0-1 (m5.large)",
        "drift (AMIDrift)",
        "default: 10% at once",
        "! shop/big-0 and 1 more: too large [NO_TYPE_FITS]",
        "pod shop/db-0: a PDB [PDB]",
        "note: a note",
        "at rest with the change  1.5000  1095.00  1.4000",
        "Plan: 1 node to add, 1 to replace, 0 to remove; 3 evictions; +$365.00/month (+50.0%); at rest after 2m30s.",
    ):
        assert part in text, part


def test_the_korean_text_has_no_english_headings() -> None:
    with in_language("ko"):
        text = as_text(prediction())
    assert "계획: 추가 노드 1개" in text
    assert "Plan:" not in text and "Nodes (" not in text


def test_nothing_that_changes_is_said_in_one_line() -> None:
    same = Prediction(without=QUIET, applied=QUIET, notes=(), market=(), horizon_s=3600.0)
    assert not same.changed
    assert as_text(same).startswith("No changes")
    assert json.loads(as_json(same))["changed"] is False


def test_json_has_both_runs_and_the_summary() -> None:
    body = json.loads(as_json(prediction(), limits.read("evictions>2")))
    assert body["changed"] is True
    assert body["summary"]["evictions"] == 3
    assert body["summary"]["dollarsPerMonth"] == 1095.0
    assert body["exceeded"] == ["evictions>2"]
    assert body["with"]["evictions"][0]["pod"] == "shop/web-0"
    assert body["without"]["end"]["perHour"] == 1.0


def test_markdown_puts_signs_where_a_diff_shows_them() -> None:
    text = as_markdown(prediction(), limits.read("evictions>2"))
    assert text.startswith("### dovetail diff\n\n**Plan: 1 node to add")
    assert "`evictions>2`" in text
    assert "| at rest with the change | 1.5000 | 1095.00 | 1.4000 | 3 | 2 |" in text
    lines = text.splitlines()
    assert any(line.startswith("!") and "ip-10-0-0-1" in line for line in lines)
    assert any(line.startswith("+") and "m5.large" in line for line in lines)
    assert text.count("```") == 2


@pytest.mark.parametrize(
    ("text", "exceeded"),
    [
        ("evictions>2", True),
        ("evictions>3", False),
        ("evictions>=3", True),
        ("evictions>+2", True),
        ("cost>+5%", True),
        ("cost>+50%", False),
        ("cost<-5%", False),
        ("cost>1.4", True),
        ("cost>+0.6", False),
        ("pending>0", True),
        ("added>1", False),
        ("minutes>2", True),
    ],
)
def test_limits(text: str, exceeded: bool) -> None:
    (limit,) = limits.read(text)
    assert limit.exceeded(summary(prediction())) is exceeded


@pytest.mark.parametrize("text", ["evictions", "evictions=3", "pods>3", "evictions>5%", "minutes>+3", "cost>x"])
def test_a_limit_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="--fail-on"):
        limits.read(text)


def test_a_cluster_that_cost_nothing_before_exceeds_any_share() -> None:
    free = PredictedState(per_hour=0.0, lower_bound=0.0, nodes=0, pods=0, pending=0)
    empty = msgspec.structs.replace(QUIET, start=free, end=free)
    first = msgspec.structs.replace(prediction(), without=empty)
    (limit,) = limits.read("cost>+500%")
    assert limit.exceeded(summary(first))


@pytest.mark.parametrize(("seconds", "text"), [(36.2, "36s"), (119.4, "119s"), (150, "2m30s"), (9000, "2h30m")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
