"""kube-scheduler 1.36.3's own answers to 1,160 random cases: nodes, scores and words are the same here.

The hard ones are full of priorities and budgets, or of volumes; the wide ones go through every field of spreads,
affinities, ports, resources, images, taints, preemption and volumes in turn; the mixed ones put several together,
with disks that one node holds once and images that are volumes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.lab.scheduler.node_matrix import NodeMatrix
from dovetail.lab.scheduler.schedule_one import schedule
from dovetail.lab.scheduler.vectorised.schedule import Fast
from dovetail.model.fit import pod_info
from dovetail.model.meta import view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from tests.lab.scheduler.scheduler_answers import answer, cluster_of, pending_of
from tests.lab.scheduler.scheduler_cases import Cases

Json = dict[str, Any]
RECORDED = Path(__file__).parents[2] / "data" / "scheduler"


def recorded() -> list[Json]:
    files = [RECORDED / f"kube-scheduler-1.36.3{part}.jsonl.gz" for part in ("", "-hard", "-wide", "-mixed")]
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def normal(found: Json) -> Json:
    """The order of a node's reasons is no part of the answer; a node that stands alone needs no score."""
    if "scores" not in found:
        return found
    rejections = {name: sorted(reasons) for name, reasons in (found.get("rejections") or {}).items()}
    chosen = found["scores"] if len(found["scores"]) > 1 else sorted(found["scores"])
    return {"scores": chosen, "rejections": rejections}


def test_answers_are_those_of_the_real_scheduler() -> None:
    differing = [
        (each["case"]["pending"], each["answer"], answer(each["case"]))
        for each in recorded()
        if normal(answer(each["case"])) != normal(each["answer"])
    ]
    assert differing == []


def test_the_recordings_cover_every_kind_of_answer() -> None:
    answers = [each["answer"] for each in recorded()]
    assert sum("scores" in each for each in answers) > 100
    assert sum("message" in each for each in answers) > 100
    assert sum(bool(each.get("nominated")) for each in answers) > 5
    assert any("not found" in each.get("message", "") for each in answers)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_node_matrix_decides_as_node_by_node(seed: int) -> None:
    """The fast way and the plain way are one scheduler."""
    cases, answered, failed = Cases(seed), 0, 0
    for _ in range(300):
        case = cases.case()
        for node in case["nodes"]:
            node["status"].pop("images", None)
        cluster, pod = cluster_of(case), pending_of(case)
        quick = Fast(NodeMatrix(cluster)).decide(pod, {})
        if quick is not None:
            answered += 1
            plain = schedule(pod, cluster)
            assert (quick.node, quick.feasible) == (plain.node, plain.feasible)
            if quick.node is None:
                failed += 1
                assert quick.rejections == plain.rejections
                assert quick.rejection_counts() == plain.rejection_counts()
    assert answered > 30
    assert failed > 3


def test_the_node_matrix_follows_added_and_removed_nodes_and_pods() -> None:
    """A matrix kept up to date decides as one made anew."""
    cases = Cases(11)
    case = cases.case()
    case["nodes"] = [cases.node(f"m{at}") for at in range(30)]
    for node in case["nodes"]:
        node["status"].pop("images", None)
    cluster = cluster_of(case | {"pods": []})
    kept = Fast(NodeMatrix(cluster))
    spread = {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    placed = []
    for at in range(200):
        manifest = {
            "metadata": {"name": f"p{at}", "uid": f"u{at}", "namespace": "default", "labels": {"app": f"a{at % 3}"}},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}}}],
                "topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": {"app": f"a{at % 3}"}}}],
            },
        }
        pod = pod_info(view(manifest, Pod))
        mine, fresh = kept.decide(pod, {}), Fast(NodeMatrix(cluster)).decide(pod, {})
        assert mine == fresh
        cluster.touched.update(dict.fromkeys(cluster.nodes))
        if mine is not None and mine.node is not None:
            cluster.place(pod, mine.node)
            placed.append(pod.key)
        if at % 7 == 0 and placed:
            cluster.remove(placed.pop(0))
        if at % 50 == 25:
            cluster.remove_node(next(iter(cluster.nodes)))


def test_rejections_follow_added_and_removed_nodes_and_pods() -> None:
    """Pods that wait are refused as if all nodes were checked anew, with nodes that come back in another row."""
    cases = Cases(12)
    case = cases.case()
    case["nodes"] = [cases.node(f"m{number}") for number in range(30)]
    for node in case["nodes"]:
        node["status"].pop("images", None)
    cluster = cluster_of(case | {"pods": []})
    kept, refused, gone = Fast(NodeMatrix(cluster)), 0, list[Node]()
    for number in range(300):
        large = number % 2 == 0
        requests = {"cpu": "900" if large else "300m", "memory": "16Mi"}
        manifest = {
            "metadata": {"name": f"p{number}", "uid": f"u{number}", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        }
        pod = pod_info(view(manifest, Pod))
        decision = kept.decide(pod, {})
        if decision is None or decision.node is None:
            plain = schedule(pod, cluster)
            assert plain.node is None
            assert decision is not None
            assert decision.rejections == plain.rejections
            assert decision.rejection_counts() == plain.rejection_counts()
            refused += 1
        else:
            cluster.place(pod, decision.node)
        if number % 5 == 0:
            name = next(iter(cluster.nodes))
            gone.append(cluster.nodes[name].node)
            cluster.remove_node(name)
        if number % 11 == 0:
            for node in gone[-1:] + gone[:1]:
                cluster.set_node(node)
            gone = gone[1:-1]
    assert refused > 100
