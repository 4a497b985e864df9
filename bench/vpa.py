"""One pass of the VPA recommender at growing sizes: CPU seconds and memory for samples, recommendations, checkpoints.

`python -m bench.vpa` measures up to 5,000 VPAs with 20,000 containers in a process apart for each size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from datetime import UTC, datetime
from time import process_time

import msgspec

from dovetail.autoscalers.vpa import checkpoints
from dovetail.autoscalers.vpa.api import Pod, VerticalPodAutoscaler
from dovetail.autoscalers.vpa.model import Model
from dovetail.chance import Chance
from dovetail.model.selector import parse_labels

#: VPAs of each step; every VPA has two pods of two containers.
SIZES = (500, 1_000, 2_500, 5_000)
PODS_PER_VPA, CONTAINERS_PER_POD = 2, 2
#: Passes before the one that is measured: histograms then have as many buckets as those of a day-old recommender.
WARM_UP_PASSES = 30
LIMIT_S, LIMIT_MB = 5.0, 500.0
START_S = 1_767_225_600.0


def build(vpas: int) -> Model:
    """A model whose pods have been measured once a minute for half an hour."""
    model = Model()
    for number in range(vpas):
        name, namespace = f"app-{number}", f"team-{number % 50}"
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
        }
        vpa = msgspec.convert(body, VerticalPodAutoscaler)
        model.put_vpa(vpa, parse_labels(f"app={name}"), f"app={name}")
        for pod in range(PODS_PER_VPA):
            containers = [{"name": f"c{index}"} for index in range(CONTAINERS_PER_POD)]
            metadata = {"name": f"{name}-{pod}", "namespace": namespace, "labels": {"app": name}}
            item = {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Running"}}
            model.put_pod(msgspec.convert(item, Pod), START_S)
    return model


def measure(model: Model, chance: Chance, time_s: float) -> None:
    """One sample of every container."""
    for key, pod in model.pods.items():
        for name in pod.containers:
            usage = model.container(key, name, time_s)
            assert usage is not None
            usage.add_cpu(int(chance.random() * 900) + 50, time_s)
            usage.add_memory(int(chance.random() * 9e8) + 10**8, time_s)


def run(vpas: int) -> dict[str, float]:
    model, chance = build(vpas), Chance(7)
    for number in range(WARM_UP_PASSES):
        measure(model, chance, START_S + 60 * number)
    now_s = START_S + 60 * WARM_UP_PASSES
    now = datetime.fromtimestamp(now_s, UTC)
    began = process_time()
    measure(model, chance, now_s)
    sampled = process_time()
    counts = model.pod_counts()
    for key, state in model.vpas.items():
        state.recommendation = model.recommend(state, now_s)
        state.update_conditions(counts[key] > 0, now)
        state.status()
    recommended = process_time()
    model.begin_checkpoints()
    size = 0
    for state in model.vpas.values():
        for usage in model.checkpointed(state, now_s).values():
            size += len(msgspec.json.encode(checkpoints.saved(usage, now)))
    saved = process_time()
    return {
        "vpas": vpas,
        "containers": vpas * PODS_PER_VPA * CONTAINERS_PER_POD,
        "samples_s": round(sampled - began, 3),
        "recommendations_s": round(recommended - sampled, 3),
        "checkpoints_s": round(saved - recommended, 3),
        "pass_s": round(saved - began, 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "checkpoint_mb": round(size / 2**20, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="Measure one number of VPAs, in this process, as JSON.")
    parser.add_argument("--check", action="store_true", help="Fail if the largest size exceeds 5 s or 500 MB.")
    options = parser.parse_args()
    if options.size:
        print(json.dumps(run(options.size)))
        return 0
    print("  VPAs containers  samples recommend checkpoint    pass   memory")
    row: dict[str, float] = {}
    for size in SIZES:
        command = [sys.executable, "-m", "bench.vpa", "--size", str(size)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{row['vpas']:>6} {row['containers']:>10} {row['samples_s']:>7.2f}s {row['recommendations_s']:>8.2f}s "
            f"{row['checkpoints_s']:>9.2f}s {row['pass_s']:>6.2f}s {row['peak_mb']:>5.0f} MB"
        )
    if options.check and (row["pass_s"] > LIMIT_S or row["peak_mb"] > LIMIT_MB):
        print(f"too much: the limits are {LIMIT_S:g} s and {LIMIT_MB:g} MB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
