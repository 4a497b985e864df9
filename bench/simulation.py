"""How the simulation grows: processor time of an hour of a cluster, with more nodes and with more pods, and of nothing.

`python -m bench.simulation [nodes pods]` plays an hour of a cluster whose pods grow by a quarter and shrink again. The
rows double the nodes, the pods, and both; each is a process of its own, whose whole processor time counts, start-up
included. The ratio is to the first row.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import yaml

NODES, PODS = 100, 3000
#: 32 cores and 128 GiB: pods are the limit of no node.
TYPE, POD = "m5.8xlarge", {"cpu": "100m", "memory": "256Mi"}
HOUR = 3600.0


class Row(msgspec.Struct, frozen=True):
    """One cluster and what an hour of it cost."""

    nodes: int
    pods: int
    seconds: float
    megabytes: int


def scenario(nodes: int, pods: int, seconds: float) -> str:
    """A Deployment on a fixed pool: every quarter of an hour as many replicas as the curve says."""
    container = {"name": "web", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": POD}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    least = round(pods * 0.8)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": least, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    document = {
        "name": f"{nodes} nodes, {pods} pods",
        "seed": 1,
        "duration": f"{seconds:g}s",
        "cluster": {"pools": [{"count": nodes, "type": TYPE}] if nodes else [], "events": "warnings", "detail": "low"},
        "manifests": [deployment] if pods else [],
        "curves": [{"name": "web", "every": "15m", "points": {"0h": least, "30m": pods, "1h": least}}] if pods else [],
    }
    return yaml.safe_dump(document, sort_keys=False)


def play(text: str) -> tuple[float, int]:
    """Processor seconds and megabytes of a process that plays the scenario."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(text)
        program = [sys.executable, "-m", "dovetail.cli", "simulate", str(path)]
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, program)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def rows(nodes: int, pods: int) -> list[Row]:
    sizes = [(nodes, pods), (2 * nodes, pods), (nodes, 2 * pods), (2 * nodes, 2 * pods)]
    return [Row(nodes, pods, *play(scenario(nodes, pods, HOUR))) for nodes, pods in sizes]


def main() -> None:
    parser = argparse.ArgumentParser(description="Play an hour of clusters of several sizes.")
    parser.add_argument("nodes", nargs="?", type=int, default=NODES)
    parser.add_argument("pods", nargs="?", type=int, default=PODS)
    asked = parser.parse_args()
    nothing, _ = play(scenario(0, 0, 1.0))
    print(f"start-up: {nothing:.2f} s of processor time for a second of an empty cluster")
    first, *more = rows(asked.nodes, asked.pods)
    for row in (first, *more):
        print(
            f"{row.nodes:,} nodes, {row.pods:,} pods, 1 h: {row.seconds:.2f} s of processor time, "
            f"{row.megabytes} MB, {HOUR / row.seconds:,.0f} simulated seconds per processor second, "
            f"{row.seconds / first.seconds:.2f} times the first"
        )


if __name__ == "__main__":
    main()
