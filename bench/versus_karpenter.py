"""Our plans against Karpenter's own scheduler on the same problems: cost, pods left out, time.

Builds `bench/karpenter` with Go on first use. Prints the ratio of every problem and its quartiles; a plan that
the verifier refuses, or a pod that only Karpenter places, is named.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.scenarios import scenario

HERE = Path(__file__).parent


def oracle() -> Path:
    """The Go program, built once into the cache."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    target = home / "dovetail" / "karpenter" / "solve-1.15.0"
    if not target.exists():
        print("building Karpenter's scheduler (some minutes) …", file=sys.stderr)
        target.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOTOOLCHAIN": "go1.26.9"}
        subprocess.run(["go", "build", "-o", target, "."], cwd=HERE / "karpenter", env=environment, check=True)
    return target


def ours(folder: Path, problem: dict[str, Any], deadline: float) -> tuple[dict[str, Any], float]:
    objects, catalogue = folder / "objects.json", folder / "catalog.json"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": problem["objects"]}))
    catalogue.write_text(json.dumps(problem["catalog"]))
    command = [sys.executable, "-m", "dovetail.cli", "plan", "-f", str(objects), "--catalog", str(catalogue),
               "--deadline", str(deadline), "-o", "json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode > 1:
        raise SystemExit(f"{problem['name']}: {done.stderr}")
    return json.loads(done.stdout), time.perf_counter() - began


def main(count: int = 60, deadline: float = 1.0) -> None:
    ratios = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for seed in range(count):
            problem = scenario(seed)
            file = folder / "problem.json"
            file.write_text(json.dumps(problem))
            theirs = json.loads(subprocess.run([oracle(), file], capture_output=True, check=True).stdout)
            plan, took = ours(folder, problem, deadline)
            left = {pod for pod, place in plan["pods"].items() if "unschedulable" in place}
            missed = sorted(left - theirs["errors"].keys())
            cost, bound = plan["cost"]["perHour"], plan["cost"]["lowerBound"]
            ratio = cost / theirs["cost"] if theirs["cost"] else None
            if ratio is not None and not (theirs["errors"].keys() - left):
                ratios.append(ratio)
            shown = "-" if ratio is None else f"{ratio:.3f}"
            print(f"{problem['name']:9} ours ${cost:8.3f} bound {bound or 0:8.3f} karpenter ${theirs['cost']:8.3f}"
                  f"  ratio {shown}  left out {len(left)}/{len(theirs['errors'])} {missed[:3] or ''} {took:.1f}s")
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"{len(ratios)} problems that both place alike: quartiles {[round(q, 3) for q in quartiles]}, "
          f"worst {max(ratios):.3f}")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:2]))
