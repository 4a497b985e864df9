"""metrics-server stands where people look for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import DEPLOYMENTS
from dovetail.lab.metrics import APISERVICES, GROUP, NAME, NAMESPACE, install

Run = Callable[..., None]


def test_the_deployment_runs_and_its_group_is_available(lab_run: Run) -> None:
    """Also when a lab that kept its data starts again: what is there stays as it is."""

    async def body(living: Any) -> None:
        await install(living.kube)

        async def runs() -> bool:
            found = await living.kube.get(DEPLOYMENTS, NAME, NAMESPACE)
            return bool(found.get("status", {}).get("readyReplicas") == 1)

        await living.lab.until(runs, 60)
        before = await living.kube.get(APISERVICES, GROUP)
        assert [(each["type"], each["status"]) for each in before["status"]["conditions"]] == [("Available", "True")]
        await install(living.kube)
        assert await living.kube.get(APISERVICES, GROUP) == before

    lab_run(body, nodes=1)
