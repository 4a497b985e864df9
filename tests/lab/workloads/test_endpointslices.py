"""EndpointSlices in detail: mirrors of handwritten Endpoints, the order of ports, when a change began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import ENDPOINTS, ENDPOINTSLICES, SERVICES
from dovetail.lab.controllers.endpointslices import TRIGGER, Triggers
from dovetail.lab.controllers.hashing import port_hash
from dovetail.lab.controllers.views import Condition, Meta, PodFields, PodStatus

Run = Callable[..., None]


def test_ports_are_ordered_as_kubernetes_orders_them() -> None:
    """Orders seen on a real control plane."""
    for seen in (
        [("80-80", 80), ("443-8443", 8443), ("51-99", 99), ("91-11", 11)],
        [("80-80", 80), ("92-12", 12), ("443-8443", 8443), ("52-99", 99)],
        [("80-80", 80), ("53-99", 99), ("93-13", 13), ("443-8443", 8443)],
    ):
        ports = [{"name": name, "port": number, "protocol": "TCP"} for name, number in seen]
        assert sorted(ports, key=port_hash) == ports


def test_endpoints_written_by_hand_have_a_slice_that_follows_them(lab_run: Run) -> None:
    async def mirrors(workload_lab: Any) -> list[dict[str, Any]]:
        found = (
            await workload_lab.kube.list(ENDPOINTSLICES, "default", labels="kubernetes.io/service-name=outside")
        ).items
        return [{"endpoints": each["endpoints"], "ports": each["ports"]} for each in found]

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(
            SERVICES, {"metadata": {"name": "outside"}, "spec": {"ports": [{"port": 80}]}}, "default"
        )
        subset = {"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 80}]}
        await workload_lab.kube.create(ENDPOINTS, {"metadata": {"name": "outside"}, "subsets": [subset]}, "default")
        await asyncio.sleep(1)
        ports = [{"name": "", "port": 80, "protocol": "TCP"}]
        shown = [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}}]
        assert await mirrors(workload_lab) == [{"endpoints": shown, "ports": ports}]
        gone = {"subsets": [{"notReadyAddresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 80}]}]}
        await workload_lab.kube.patch(ENDPOINTS, "outside", gone, "default")
        await asyncio.sleep(1)
        assert (await mirrors(workload_lab))[0]["endpoints"][0]["conditions"] == {"ready": False}
        await workload_lab.kube.delete(SERVICES, "outside", "default")
        await asyncio.sleep(1)
        assert await mirrors(workload_lab) == []

    lab_run(body, nodes=1)


def test_a_change_of_endpoints_began_when_a_pod_turned_ready_and_a_pod_that_went_tells_nothing() -> None:
    service = {"metadata": {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}}

    def pod(name: str, since: str) -> PodFields:
        ready = Condition(type="Ready", status="True", last_transition_time=f"2026-01-01T00:00:{since}Z")
        return PodFields(metadata=Meta(name=name), status=PodStatus(conditions=(ready,)))

    triggers = Triggers()
    assert triggers.marks(service, [pod("a", "05")]) == {TRIGGER: "2026-01-01T00:00:00Z"}
    both = [pod("b", "09"), pod("c", "08"), pod("a", "05")]
    assert triggers.marks(service, both) == {TRIGGER: "2026-01-01T00:00:08Z"}
    assert triggers.marks(service, [pod("b", "09")]) == {}
