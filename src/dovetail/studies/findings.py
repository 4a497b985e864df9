"""What a comparison found: sentences with their figures, and none about a difference inside the spread.

A sentence is a code with the set-ups it is about; `texts` turns it into English or Korean.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from dovetail.studies.setups import NodeAutoscaler, Setup, by_pods
from dovetail.studies.summary import Row, pods_differ


class Side(StrEnum):
    """Whether a finding speaks for or against the set-up it is about."""

    ADVANTAGE = "advantage"
    DISADVANTAGE = "disadvantage"


class StudyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """`measure` of `about` compared with `others`, best first; `effect` compares with the set-up without HPA or VPA."""

    measure: str
    side: Side
    about: Setup
    others: tuple[Setup, ...]
    effect: str = ""


#: Measures that are compared, and whether less is better.
COMPARED: tuple[tuple[str, bool], ...] = (
    ("dollars", True),
    ("cost_ratio", True),
    ("ready_p50", True),
    ("ready_p99", True),
    ("pods_waited", True),
    ("evictions", True),
    ("nodes_launched", True),
    ("cpu_utilisation", False),
    ("api_calls", True),
    ("most_nodes", False),
)
#: Measures in which HPA or VPA is compared with neither.
EFFECTS: tuple[tuple[str, bool], ...] = (("dollars", True), ("pods_waited", True), ("evictions", True))


def between_autoscalers(rows: Sequence[Row]) -> list[StudyFinding]:
    """For every measure the best and the worst of the set-ups that differ in the node autoscaler alone.

    None where a seed contradicts. Where the pods differ, the cost for the lower bound is compared and not the cost.
    """
    by_setup = {row.setup: row for row in rows}
    findings: list[StudyFinding] = []
    for setups in by_pods(by_setup).values():
        unfit = "dollars" if pods_differ([by_setup[setup] for setup in setups]) else "cost_ratio"
        for measure, less_is_better in COMPARED:
            if measure == unfit:
                continue
            group = [by_setup[setup] for setup in setups if measure in by_setup[setup].figures]
            if len(group) < 2:
                continue
            ordered = sorted(group, key=lambda row: row[measure].median, reverse=not less_is_better)
            best, second, last_but_one, worst = ordered[0], ordered[1], ordered[-2], ordered[-1]
            if _better(best, second, measure, less_is_better):
                findings.append(_finding(measure, Side.ADVANTAGE, best, ordered[1:]))
            if len(ordered) > 2 and _better(last_but_one, worst, measure, less_is_better):
                findings.append(_finding(measure, Side.DISADVANTAGE, worst, ordered[:-1]))
            elif len(ordered) == 2 and _better(best, worst, measure, less_is_better):
                findings.append(_finding(measure, Side.DISADVANTAGE, worst, ordered[:1]))
    return findings


def effects(rows: Sequence[Row]) -> list[StudyFinding]:
    """What HPA and VPA change for each node autoscaler."""
    by_setup = {row.setup: row for row in rows}
    findings: list[StudyFinding] = []
    for row in rows:
        plain = by_setup.get(Setup(row.setup.nodes))
        if plain is None or row.setup == plain.setup:
            continue
        effect = "hpa" if row.setup.hpa else "vpa"
        for measure, less_is_better in EFFECTS:
            if measure not in row.figures or measure not in plain.figures:
                continue
            if _better(row, plain, measure, less_is_better):
                findings.append(_finding(measure, Side.ADVANTAGE, row, [plain], effect))
            elif _better(plain, row, measure, less_is_better):
                findings.append(_finding(measure, Side.DISADVANTAGE, row, [plain], effect))
    return findings


def of_autoscaler(findings: Sequence[StudyFinding], nodes: NodeAutoscaler, side: Side) -> list[StudyFinding]:
    """What speaks for or against one node autoscaler."""
    return [finding for finding in findings if finding.about.nodes is nodes and finding.side is side]


def _better(first: Row, other: Row, measure: str, less_is_better: bool) -> bool:
    if less_is_better:
        return first[measure].below(other[measure])
    return other[measure].below(first[measure])


def _finding(measure: str, side: Side, about: Row, others: Sequence[Row], effect: str = "") -> StudyFinding:
    return StudyFinding(
        measure=measure, side=side, about=about.setup, others=tuple(row.setup for row in others), effect=effect
    )
