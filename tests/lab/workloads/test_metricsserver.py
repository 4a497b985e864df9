"""metrics-server stands where people look for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import DEPLOYMENTS
from dovetail.lab.metrics import APISERVICES, GROUP, NAME, NAMESPACE, install

Run = Callable[..., None]


def test_the_deployment_runs_and_its_group_is_available(lab_run: Run) -> None:
    """Also when a lab that kept its data starts again: what is there stays as it is."""

    async def body(workload_lab: Any) -> None:
        await install(workload_lab.kube)

        async def runs() -> bool:
            found = await workload_lab.kube.get(DEPLOYMENTS, NAME, NAMESPACE)
            return bool(found.get("status", {}).get("readyReplicas") == 1)

        await workload_lab.lab.until(runs, 60)
        before = await workload_lab.kube.get(APISERVICES, GROUP)
        assert [(each["type"], each["status"]) for each in before["status"]["conditions"]] == [("Available", "True")]
        await install(workload_lab.kube)
        assert await workload_lab.kube.get(APISERVICES, GROUP) == before

    lab_run(body, nodes=1)
