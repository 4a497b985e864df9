"""Karpenter 1.15's own answers: requirements, labels, taints, host ports, pod requests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.model import taints
from dovetail.model.host_ports import clash, host_ports
from dovetail.model.labels import CORE_WELL_KNOWN, GROUP, restricted
from dovetail.model.meta import view
from dovetail.model.nodes import Taint
from dovetail.model.pod_resources import limits, quantities
from dovetail.model.pods import Pod, Toleration
from dovetail.model.quantity import resources
from dovetail.model.requirements import Requirement, Requirements, requirement

Json = dict[str, Any]
VECTORS = Path(__file__).parents[1] / "data" / "model" / "karpenter-1.15.0.jsonl.gz"


def vectors(op: str) -> list[tuple[Json, Json]]:
    rows = [json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]
    return [(row["in"], row["out"]) for row in rows if row["in"]["op"] == op]


def read(entry: Json) -> Requirement:
    return requirement(entry["key"], entry["operator"], entry["values"], entry.get("minValues"))


def intersect(case: Json) -> Json:
    a, b = read(case["a"][0]), read(case["b"][0])
    both = a.intersection(b)
    return {
        "a": str(a),
        "b": str(b),
        "text": str(both),
        "op": both.operator,
        "len": len(both),
        "overlap": a.intersects(b),
        "has": [both.has(value) for value in case["values"]],
    }


def compat(case: Json) -> Json:
    a, b = (Requirements(read(each) for each in case[side]) for side in "ab")
    known = CORE_WELL_KNOWN if case["wellKnown"] else frozenset()
    return {"a": str(a), "b": str(b), "compatible": a.compatible(b, known), "intersects": a.intersects(b)}


def tolerance(case: Json) -> Json:
    there = msgspec.convert(case["taints"], list[Taint])
    missing = taints.untolerated(there, msgspec.convert(case["tolerations"], list[Toleration]))
    return {"err": not missing, "eph": [str(taints.ephemeral(each)).lower() for each in there]}


def ports(case: Json) -> Json:
    return {"err": clash(host_ports(view(case["pod"], Pod)), host_ports(view(case["other"], Pod))) is None}


def asked(case: Json) -> Json:
    pod = view(case["pod"], Pod)
    return {"requests": {name: str(each) for name, each in quantities(pod).items()}, "limits": limits(pod)}


def restriction(case: Json) -> Json:
    return {"err": restricted(case["key"], CORE_WELL_KNOWN, frozenset({GROUP}))}


@pytest.mark.parametrize(
    ("op", "ours"),
    [
        ("intersect", intersect),
        ("compat", compat),
        ("restricted", restriction),
        ("taints", tolerance),
        ("ports", ports),
        ("requests", asked),
    ],
)
def test_answers_as_karpenter_does(op: str, ours: Callable[[Json], Json]) -> None:
    cases = vectors(op)
    assert len(cases) > 50
    for case, theirs in cases:
        if op == "requests":
            theirs["limits"] = resources(theirs["limits"])
        if op in ("compat", "taints", "ports"):  # where Karpenter finds nothing wrong it says nothing
            theirs |= {key: theirs[key] is None for key in ("compatible", "intersects", "err") if key in theirs}
        assert ours(case) == theirs, case
