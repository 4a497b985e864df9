"""Plays the stories around a real control plane and keeps what it saw: `python -m tests.lab.workloads.record`."""

from __future__ import annotations

import asyncio
import json
import sys

from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.metrics_apiservice import extended
from dovetail.lab.real_control_plane import RealControlPlane
from tests.lab.workloads.workload_runs import RECORDED, WORKLOAD_RUNS, play


async def record(workload_run: str) -> None:
    clock = Clock(asyncio.get_running_loop())
    async with RealControlPlane(scheduler=True, controllers=True) as plane:
        transport = plane.transport()
        lab = Lab(transport, clock, Chance(1), LabParts(controllers=False, scheduler=False))
        try:
            async with lab, extended(lab.kube, lab.metrics):
                seen = await play(lab, workload_run)
        finally:
            await transport.close()
    RECORDED.mkdir(parents=True, exist_ok=True)
    (RECORDED / f"{workload_run}.json").write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or WORKLOAD_RUNS:
        run_scaled(record(name))
