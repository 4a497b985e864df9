"""Runs of a small workload: every set-up runs the same pods, and its figures hold together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.studies.run import Run
from dovetail.studies.setups import NodeAutoscaler, Setup
from dovetail.studies.sources import source
from dovetail.studies.study import Task, play
from tests.studies import small_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[NodeAutoscaler, Run]:
    path = small_study.write(tmp_path_factory.mktemp("study"))
    return {nodes: play(Task(source(str(path)), Setup(nodes), 1)) for nodes in NodeAutoscaler}


def test_every_set_up_runs_all_pods_and_pays_at_least_the_lower_bound(runs: dict[NodeAutoscaler, Run]) -> None:
    assert len(runs) == len(NodeAutoscaler)
    for run in runs.values():
        measures = run.measures
        assert not run.problems
        assert run.samples[-1].pods == 6
        assert run.samples[-1].pending == 0
        assert measures.pods >= 30
        assert measures.pods_waited >= 12
        assert measures.dollars > measures.lower_bound > 0
        assert 0 < measures.cpu_utilisation <= 1
        assert measures.ready_p50 is not None and measures.ready_p99 is not None
        assert 25 < measures.ready_p99 < 300
        assert measures.nodes_launched > measures.nodes_removed > 0
        assert measures.api_calls > 0
        assert measures.cloud_calls > 0


def test_the_lower_bound_is_that_of_the_pods_under_every_autoscaler(runs: dict[NodeAutoscaler, Run]) -> None:
    at_rest = {run.samples[-1].bound for run in runs.values()}
    assert len(at_rest) == 1
    assert at_rest.pop() > 0


def test_cluster_autoscaler_waits_ten_minutes_before_it_removes_a_node(runs: dict[NodeAutoscaler, Run]) -> None:
    """Its documented default, and the reason why it is dearer after a scale-down."""
    soon = {nodes: next(each for each in run.samples if each.at >= 15 * 60) for nodes, run in runs.items()}
    least = min(soon[NodeAutoscaler.KARPENTER].rate, soon[NodeAutoscaler.DOVETAIL].rate)
    assert soon[NodeAutoscaler.CLUSTER_AUTOSCALER].rate > 1.5 * least


def test_karpenter_leaves_placement_to_kube_scheduler_and_consolidates(runs: dict[NodeAutoscaler, Run]) -> None:
    karpenter = runs[NodeAutoscaler.KARPENTER]
    assert karpenter.measures.nodes_removed > 0
    peak = max(sample.rate for sample in karpenter.samples)
    assert karpenter.samples[-1].rate < 0.5 * peak


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    path = small_study.write(tmp_path)
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "XDG_CACHE_HOME": str(tmp_path / hash_seed)}
        command = [sys.executable, "-m", "dovetail.cli", "compare", str(path), "--jobs", "1", "-o", "json"]
        outputs.append(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert outputs[0] == outputs[1]
    assert b'"dollars"' in outputs[0]
