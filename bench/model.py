"""How fast the model is: requirements, quantities and whole claims, each beside the naive way to do it.

    python bench/model.py [--seconds 1]

Every figure is the best of three runs in one process; the naive twin runs right after its rival.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from dovetail.model import quantity
from dovetail.model.kinds.admission import check
from dovetail.model.kinds.crds import root_schema
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.requirements import requirement

CLAIM: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "default-x7k2p", "labels": {"karpenter.sh/nodepool": "default"}},
    "spec": {
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
            {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
            {
                "key": "node.kubernetes.io/instance-type",
                "operator": "In",
                "values": [f"m5.{n}xlarge" for n in range(40)],
            },
        ],
        "resources": {"requests": {"cpu": "1475m", "memory": "1686Mi", "pods": "6"}},
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
    },
}
QUANTITIES = ("100m", "1", "1.5", "512Mi", "1Gi", "1e3", "250M", "2Ti", "1475m", "1686Mi", "0.25", "64Ki")
SUFFIX = {"m": "0.001", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
SUFFIX |= {f"{letter}i": str(1024**power) for power, letter in enumerate("KMGTP", 1)}


def naive_quantity(text: str) -> Decimal:
    read = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", text)
    assert read is not None
    return Decimal(read[1]) * Decimal(SUFFIX[read[2]])


def naive_intersection(one: dict[str, Any], other: dict[str, Any], universe: Sequence[str]) -> set[str]:
    """Every known value asked of both sides."""
    return {value for value in universe if allows(one, value) and allows(other, value)}


def allows(term: dict[str, Any], value: str) -> bool:
    match term["operator"]:
        case "In":
            return value in term["values"]
        case "NotIn":
            return value not in term["values"]
        case "Gt":
            return value.isdigit() and int(value) > int(term["values"][0])
        case _:
            return True


def naive_check(schema: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """The schema walked afresh for every object, as a generic validator does; without the rules, which ours checks."""

    def walk(value: Any, node: dict[str, Any], path: str) -> list[str]:
        found = []
        if "pattern" in node and isinstance(value, str) and not re.search(node["pattern"], value):
            found.append(path)
        if "enum" in node and value not in node["enum"]:
            found.append(path)
        if isinstance(value, dict):
            found += [f"{path}.{name}" for name in node.get("required", ()) if name not in value]
            for key, member in value.items():
                inner = node.get("properties", {}).get(key) or node.get("additionalProperties")
                found += walk(member, inner, f"{path}.{key}") if inner else []
        elif isinstance(value, list):
            for index, member in enumerate(value):
                found += walk(member, node["items"], f"{path}[{index}]")
        return found

    return lambda obj: walk(json.loads(json.dumps(obj)), schema, "")  # type: ignore[return-value]


def rate(work: Callable[[], int], seconds: float) -> float:
    """Things done in a second: the best of three."""
    best = 0.0
    for _ in range(3):
        done, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds / 3:
            done += work()
        best = max(best, done / passed)
    return best


def requirements_work() -> tuple[Callable[[], int], Callable[[], int]]:
    values = [f"{family}.{size}" for family in ("m5", "c5", "r5", "t3") for size in ("large", "xlarge", "2xlarge")]
    terms = [
        {"operator": "In", "values": values[:8]},
        {"operator": "NotIn", "values": values[3:5]},
        {"operator": "In", "values": values[2:]},
        {"operator": "Exists", "values": []},
    ]
    read = [requirement("node.kubernetes.io/instance-type", str(t["operator"]), list(t["values"])) for t in terms]
    pairs = [(a, b) for a in range(4) for b in range(4)]

    def ours() -> int:
        for a, b in pairs:
            read[a].intersection(read[b])
        return len(pairs)

    def naive() -> int:
        for a, b in pairs:
            naive_intersection(terms[a], terms[b], values)
        return len(pairs)

    return ours, naive


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    seconds: float = parser.parse_args().seconds

    def quantities() -> int:
        for text in QUANTITIES:
            quantity.parse(text)
        return len(QUANTITIES)

    def naive_quantities() -> int:
        for text in QUANTITIES:
            naive_quantity(text)
        return len(QUANTITIES)

    def fresh() -> int:
        """Quantities never seen before: nothing remembered helps."""
        fresh.at += 1000  # type: ignore[attr-defined]
        for number in range(fresh.at, fresh.at + 1000):  # type: ignore[attr-defined]
            quantity.parse(f"{number}Mi")
        return 1000

    fresh.at = 0  # type: ignore[attr-defined]

    def claims() -> int:
        assert not check(CLAIM)
        return 1

    walker = naive_check(root_schema(NodeClaim))

    def naive_claims() -> int:
        assert not walker(CLAIM)
        return 1

    ours, naive = requirements_work()
    rows: list[tuple[str, Callable[[], int], Callable[[], int] | None]] = [
        ("requirements intersected", ours, naive),
        ("quantities parsed", quantities, naive_quantities),
        ("quantities parsed, all new", fresh, None),
        ("NodeClaims validated", claims, naive_claims),
    ]
    print(f"{'per second':30}{'dovetail':>14}{'naive':>14}{'times':>8}")
    for name, work, rival in rows:
        fast = rate(work, seconds)
        slow = rate(rival, seconds) if rival else None
        tail = f"{slow:>14,.0f}{fast / slow:>8.1f}" if slow else ""
        print(f"{name:30}{fast:>14,.0f}{tail}")


if __name__ == "__main__":
    main()
