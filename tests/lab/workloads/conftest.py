"""A lab in virtual time for each test: `lab_run(body)` starts one with nodes and runs the body in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.clock import run_virtual
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, PODS
from dovetail.lab.cluster import Lab, LabParts

Body = Callable[["WorkloadLab"], Awaitable[None]]


class WorkloadLab:
    """A lab and the questions tests ask it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kube = lab.kube

    async def pods(self, app: str | None = None) -> list[dict[str, Any]]:
        return (await self.kube.list(PODS, "default", labels=f"app={app}" if app else None)).items

    async def running(self, app: str) -> int:
        return sum(
            any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
            for pod in await self.pods(app)
            if "deletionTimestamp" not in pod["metadata"]
        )

    async def available(self, name: str, count: int, seconds: float = 120) -> None:
        """Wait until a Deployment is rolled out with `count` replicas."""

        async def fact() -> bool:
            item = await self.kube.get(DEPLOYMENTS, name, "default")
            status = item.get("status", {})
            fields = ("replicas", "updatedReplicas", "availableReplicas")
            fresh = status.get("observedGeneration") == item["metadata"]["generation"]
            return fresh and all(status.get(field, 0) == count for field in fields)

        await self.lab.until(fact, seconds)

    async def events(self, reason: str | None = None) -> list[str]:
        items = (await self.kube.list(CORE_EVENTS)).items
        return [item["message"] for item in items if reason is None or item["reason"] == reason]


@pytest.fixture
def lab_run() -> Callable[..., None]:
    def run(body: Body, nodes: int = 3, seed: int = 1, parts: LabParts | None = None) -> None:
        async def main() -> None:
            async with Lab.embedded(seed, parts) as lab:
                await lab.nodes(nodes, zones=("us-west-2a", "us-west-2b", "us-west-2c"))
                await body(WorkloadLab(lab))

        run_virtual(main())

    return run
