"""A process that cannot start logs what it waits for."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.controllers import logs
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube.client import Kube
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.faults.cloud import FaultyCloud
from dovetail.lab.in_process import InProcess


def test_a_cluster_without_our_crds_logs_how_to_install_them() -> None:
    async def main() -> None:
        clock, chance = Clock(asyncio.get_running_loop()), Chance(1)
        server = ApiServer(clock, chance)
        lines: list[dict[str, Any]] = []
        log = logs.logger(clock, write=lambda line: lines.append(json.loads(line)))
        settings = Settings(metrics_port=0, health_probe_port=0, disable_leader_election=True)
        cloud = FaultyCloud(clock, chance, (), SimulatedMarket())
        scaler = Autoscaler(Kube(InProcess(server), clock), cloud, clock, chance, settings, log=log)
        running = asyncio.ensure_future(scaler.run())
        await asyncio.sleep(15)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        (published,) = [line for line in lines if line["message"] == "waiting for the cluster"]
        assert "nodepools.karpenter.sh: GET /apis/karpenter.sh/v1/nodepools: 404" in published["error"]
        assert published["error"].endswith("install the definitions: dovetail crds | kubectl apply -f -")
        assert [published["error"]] == scaler.problems()

    run_virtual(main())
