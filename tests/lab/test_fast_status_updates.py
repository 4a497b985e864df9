"""A status that a controller of the lab writes without a request is stored as the API server would store it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.kube.errors import Conflict
from dovetail.kube.resources import DEPLOYMENTS, PDBS, REPLICASETS, Resource
from dovetail.kube.transport import Transport
from dovetail.lab.direct_client import DirectKube
from dovetail.lab.fast_transport.transport import FastTransport
from dovetail.lab.in_process import InProcess
from dovetail.lab.server import LabServer

Json = dict[str, Any]

_LABELS = {"app": "web"}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
_METADATA = {"name": "web", "namespace": "default"}
_SPECS: dict[Resource, Json] = {
    DEPLOYMENTS: {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE},
    REPLICASETS: {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE},
    PDBS: {"maxUnavailable": "10%", "selector": {"matchLabels": _LABELS}},
}
_SINCE = "2026-01-01T00:00:02Z"
_AVAILABLE = {
    "type": "Available",
    "status": "True",
    "lastUpdateTime": _SINCE,
    "lastTransitionTime": _SINCE,
    "reason": "MinimumReplicasAvailable",
    "message": "Deployment has minimum availability.",
}
_ALLOWED = {
    "type": "DisruptionAllowed",
    "status": "False",
    "observedGeneration": 1,
    "lastTransitionTime": _SINCE,
    "reason": "InsufficientPods",
    "message": "",
}
_STATUSES: list[tuple[Resource, Json]] = [
    (DEPLOYMENTS, {"observedGeneration": 1, "replicas": 3, "terminatingReplicas": 0, "conditions": [_AVAILABLE]}),
    (DEPLOYMENTS, {"observedGeneration": 1, "replicas": 0, "unavailableReplicas": 0, "conditions": []}),
    (REPLICASETS, {"replicas": 3, "fullyLabeledReplicas": 3, "terminatingReplicas": 0, "observedGeneration": 1}),
    (REPLICASETS, {"replicas": 0, "readyReplicas": 0, "observedGeneration": 1}),
    (
        PDBS,
        {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
            "conditions": [_ALLOWED],
        },
    ),
]


def _client(transport: Transport) -> DirectKube:
    clock = Clock(asyncio.get_running_loop())
    return DirectKube(transport, clock, chance=Chance(1), manager="test", user_agent="test")


def _server() -> LabServer:
    return LabServer(Clock(asyncio.get_running_loop()), Chance(1))


async def _stored(kube: DirectKube, resource: Resource, status: Json) -> Json:
    """The object after two updates of its status: the first one, and one that changes nothing."""
    made = await kube.create(resource, {"metadata": _METADATA, "spec": _SPECS[resource]})
    written = await kube.update(resource, {**made, "status": status}, subresource="status")
    again = await kube.update(resource, {**written, "status": status}, subresource="status")
    assert again["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
    read = await kube.get(resource, "web", "default")
    assert read == again
    metadata = {name: value for name, value in read["metadata"].items() if name not in ("managedFields", "uid")}
    metadata.pop("creationTimestamp")
    return {**read, "metadata": metadata}


@pytest.mark.parametrize(("resource", "status"), _STATUSES)
def test_a_status_is_stored_as_the_api_server_stores_it(resource: Resource, status: Json) -> None:
    async def both() -> tuple[Json, Json]:
        fast, usual = _server(), _server()
        return (
            await _stored(_client(FastTransport(fast)), resource, status),
            await _stored(_client(InProcess(usual)), resource, status),
        )

    fast, usual = run_virtual(both())
    assert fast == usual


def test_a_status_of_an_older_version_is_a_conflict() -> None:
    async def update_twice() -> None:
        kube = _client(FastTransport(_server()))
        made = await kube.create(REPLICASETS, {"metadata": _METADATA, "spec": _SPECS[REPLICASETS]})
        await kube.update(REPLICASETS, {**made, "status": {"replicas": 1}}, subresource="status")
        await kube.update(REPLICASETS, {**made, "status": {"replicas": 2}}, subresource="status")

    with pytest.raises(Conflict):
        run_virtual(update_twice())


def test_a_plain_status_needs_no_request() -> None:
    async def requests() -> list[str]:
        server = _server()
        kube, methods = _client(FastTransport(server)), []
        made = await kube.create(REPLICASETS, {"metadata": _METADATA, "spec": _SPECS[REPLICASETS]})

        async def count(request: Any) -> None:
            methods.append(request.method)

        server.middleware.append(count)
        await kube.update(REPLICASETS, {**made, "status": {"replicas": 1}}, subresource="status")
        return methods

    assert run_virtual(requests()) == []
