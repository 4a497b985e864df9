"""A fleet with everything that is hard to draw: unknown prices, wide characters, long names, hostile messages."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from dovetail.clock import EPOCH
from dovetail.view import (
    FleetView,
    HourlyPrice,
    LowerBound,
    NodePhase,
    NodeView,
    PendingPod,
    PodView,
    PoolView,
    WatchHealth,
)
from dovetail.view.totals import summed

NOW = EPOCH + timedelta(hours=5)
GIB = 2**30


def a_pod(name: str, cpu: int = 500, memory: int = GIB, namespace: str = "shop") -> PodView:
    return PodView(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        workload="Deployment/web",
        phase="Running",
        requests={"cpu": cpu, "memory": memory},
        ready=True,
        created=EPOCH,
    )


def a_node(name: str, pods: tuple[PodView, ...] = (), **fields: object) -> NodeView:
    requests = {
        "cpu": sum((pod.requests or {})["cpu"] for pod in pods),
        "memory": sum((pod.requests or {})["memory"] for pod in pods),
        "pods": len(pods),
    }
    node = NodeView(
        name=name,
        claim=None,
        has_node=True,
        state=NodePhase.READY,
        reason="",
        until=None,
        pool="default",
        group=None,
        zone="ap-northeast-2a",
        instance_type="m5.large",
        capacity_type="on-demand",
        architecture="amd64",
        price=HourlyPrice(0.118, "observed"),
        capacity={"cpu": 2000, "memory": 8 * GIB, "pods": 29},
        allocatable={"cpu": 2000, "memory": 8 * GIB, "pods": 29},
        requests=requests,
        usage={"cpu": 200, "memory": GIB},
        pods=pods,
        created=EPOCH,
    )
    return msgspec.structs.replace(node, **fields)


def with_totals(view: FleetView, bound: float | None = None) -> FleetView:
    view = msgspec.structs.replace(view, totals=summed(view))
    if bound is None:
        return view
    return msgspec.structs.replace(
        view, totals=msgspec.structs.replace(view.totals, bound=LowerBound(bound, ("words",)))
    )


@pytest.fixture
def fleet() -> FleetView:
    nodes = (
        a_node("ip-10-0-0-10.ap-northeast-2.compute.internal", (a_pod("web-1"), a_pod("web-2", 1000))),
        a_node("big-" + "x" * 59, (a_pod("batch-1", 1900, 2 * GIB, "jobs"),), instance_type="m5.24xlarge"),
        a_node("spot-1", price=None, capacity_type="spot", usage=None, pool="spot"),
        a_node("draining-1", (a_pod("web-3"),), state=NodePhase.DRAINING, reason="Underutilized", until=NOW),
        a_node(
            "claim-1",
            claim="claim-1",
            has_node=False,
            state=NodePhase.LAUNCHING,
            requests={"cpu": 4000, "memory": GIB},
            usage=None,
            allocatable={},
            instance_type=None,
            zone=None,
            capacity_type=None,
            price=None,
        ),
    )
    pending = PendingPod(
        namespace="shop",
        name="api-0",
        uid="uid-api-0",
        workload="StatefulSet/api",
        requests={"cpu": 4000, "memory": GIB},
        reason="디스크가 없는 영역입니다\x1b[31m\u202egnp <script>",
        code="VOLUME_ZONE",
        remedy="create a volume",
        created=NOW - timedelta(seconds=42),
    )
    return with_totals(
        FleetView(
            nodes={node.key: node for node in nodes},
            pending={pending.key: pending},
            pools={"default": PoolView(name="default", ready=True, limits={"cpu": 10000}, used={"cpu": 6000})},
            health=WatchHealth(kubernetes="v1.36.3", safe_mode=""),
        )
    )
