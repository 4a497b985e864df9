"""`dovetail plan --svg`: a block for every node, as large as its capacity, with its pods, price and bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from click.testing import CliRunner

from dovetail.cli import plan_svg
from dovetail.cli.main import main
from dovetail.planner.plan import Cost, Plan
from dovetail.planner.snapshot import NodeState, Snapshot

SVG = "{http://www.w3.org/2000/svg}"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers: [{name: c, image: nginx, resources: {requests: {cpu: %s, memory: %s}}}]
---
"""


def _drawn(folder: Path, manifest: str, *more: str) -> ElementTree.Element:
    (folder / "in.yaml").write_text(manifest)
    picture = folder / "plan.svg"
    result = CliRunner().invoke(main, ["plan", str(folder / "in.yaml"), "--svg", str(picture), *more])
    assert result.exit_code in (0, 1), result.output
    return ElementTree.fromstring(picture.read_text())


def _texts(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def _titles(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}title")]


def test_every_pod_is_in_a_block_and_the_bound_is_above(tmp_path: Path) -> None:
    picture = _drawn(tmp_path, WORKLOAD % ("web", 6, "700m", "1Gi") + WORKLOAD % ("huge", 1, "4000", "1Gi"))
    texts, titles = _texts(picture), _titles(picture)
    assert "/h" in texts[0] and "new node" in texts[0]
    assert texts[1].startswith("lower bound $")
    assert texts[2] == "1 pod has no place"
    for resource in ("cpu", "memory"):
        drawn = {title.split(":")[0] for title in titles if f": {resource} " in title and title.startswith("shop/web-")}
        assert len(drawn) == 6
    assert titles and not any("huge" in title for title in titles)


def test_pods_stay_inside_their_block(tmp_path: Path) -> None:
    picture = _drawn(tmp_path, WORKLOAD % ("web", 9, "1500m", "2Gi"))
    count = 0
    for block in picture.iter(f"{SVG}g"):
        rectangles = block.findall(f"{SVG}rect")
        if not rectangles:
            continue
        side = float(rectangles[0].get("width", "0"))
        for rectangle in rectangles:
            count += 1
            assert float(rectangle.get("y", "0")) >= -0.1
            assert float(rectangle.get("y", "0")) + float(rectangle.get("height", "0")) <= side + 0.2
    assert count > 18


def test_nothing_to_launch_is_said(tmp_path: Path) -> None:
    picture = _drawn(tmp_path, WORKLOAD % ("huge", 1, "4000", "1Gi"))
    assert _texts(picture)[0] == "0 new nodes, $0.0000/h"
    assert "1 pod has no place, nothing is to be launched" in _texts(picture)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "in.yaml").write_text(WORKLOAD % ("web", 1, "1", "1Gi"))
    missing = tmp_path / "no" / "plan.svg"
    result = CliRunner().invoke(main, ["plan", str(tmp_path / "in.yaml"), "--svg", str(missing)])
    assert result.exit_code == 2 and f"--svg {missing}: No such file or directory" in result.output


def test_nodes_that_stay_and_nodes_that_are_removed_are_different(tmp_path: Path) -> None:
    def node(name: str, **fields: Any) -> NodeState:
        return NodeState(name=name, labels={}, allocatable={"cpu": 2000, "memory": 2**33}, **fields)

    snapshot = Snapshot(pools=(), nodes=(node("stays", price=0.1), node("goes", price=0.2), node("unknown")))
    plan = Plan(nodes=(), placements={}, cost=Cost(per_hour=0.1, unpriced=1), remove=("goes",))
    picture = ElementTree.fromstring(plan_svg.as_svg(plan, snapshot, consolidating=True))
    assert _titles(picture)[1:] == ["stays", "goes", "unknown"]
    assert "2 nodes are kept, 1 node is removed, 1 price unknown" in _texts(picture)
    assert sum("stroke-dasharray" in rectangle.attrib for rectangle in picture.iter(f"{SVG}rect")) == 1
    assert "?" in _texts(picture)


def test_the_colours_are_named_and_the_seventh_workload_is_among_the_others(tmp_path: Path) -> None:
    manifest = "".join(WORKLOAD % (f"app{letter}", 2, "700m", "1Gi") for letter in "abcdefgh")
    picture = _drawn(tmp_path, manifest)
    texts = _texts(picture)
    assert {f"shop/app{letter}" for letter in "abcdef"} <= set(texts) and "2 others" in texts
    assert "left CPU, right memory" in texts
    fills = {rectangle.get("fill") for rectangle in picture.iter(f"{SVG}rect")}
    assert {*plan_svg._COLOURS, plan_svg._OTHERS} <= fills
    ends = [float(element.get("x", "0")) + 6.4 * len(element.text or "") for element in picture.iter(f"{SVG}text")]
    assert max(ends) <= plan_svg.WIDTH


def test_text_is_escaped() -> None:
    name = "<script>"
    allocatable = {"cpu": 1000, "memory": 1000}
    block = plan_svg.NodeBlock(name, "new", (name, name, name), allocatable, [(name, {"cpu": 500}, True)], {})
    text = plan_svg._drawn(block, 100.0, {name: "#000"})
    assert "<script>" not in text and "&lt;script&gt;" in text
