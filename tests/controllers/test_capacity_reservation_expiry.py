"""Nodes that outlive their reservation: their NodeClaims are relabelled at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import structlog

from dovetail.chance import Chance
from dovetail.clock import run_virtual
from dovetail.cluster.indexes import STAGE, of_claim
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.capacity_reservation import CapacityReservations
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import NODECLAIMS, NODES, Resource
from dovetail.kube.store import Store
from dovetail.model.kinds.nodeclaim import NodeClaim

KIND = "karpenter.sh/capacity-type"


class _Kube:
    """A server that knows no nodes."""

    def __init__(self) -> None:
        self.labels: dict[str, Any] = {}

    async def patch(self, resource: Resource, name: str, body: dict[str, Any]) -> None:
        if resource is NODES:
            raise NotFound(404, "NotFound", f'nodes "{name}" not found')
        assert resource is NODECLAIMS
        self.labels[name] = body["metadata"]["labels"]


class _Cloud:
    async def instances(self) -> tuple[Any, ...]:
        return (SimpleNamespace(provider_id="cloud:///i-1", capacity_type="on-demand"),)


def test_a_nodeclaim_becomes_on_demand_even_while_its_node_is_missing() -> None:
    async def main() -> None:
        store: Store[NodeClaim] = Store({STAGE: of_claim})
        metadata = {"name": "c", "labels": {KIND: "reserved"}}
        status = {"providerID": "cloud:///i-1", "nodeName": "gone"}
        store.put("c", msgspec.convert({"metadata": metadata, "status": status}, NodeClaim))
        kube, cluster_state = _Kube(), SimpleNamespace(claims=SimpleNamespace(store=store))
        context = SimpleNamespace(
            kube=kube, cluster_state=cluster_state, cloud=_Cloud(), chance=Chance(1), log=structlog.get_logger()
        )
        await CapacityReservations(cast(Context, context)).check()
        assert kube.labels["c"][KIND] == "on-demand"

    run_virtual(main())
