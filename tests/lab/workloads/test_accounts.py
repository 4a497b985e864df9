"""What the lab keeps beside workloads: Endpoints, quotas, default roles, and the order and number of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.errors import Forbidden
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, ENDPOINTS, PODS, RESOURCEQUOTAS, SERVICES
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.controllers.endpointslices import ports
from dovetail.lab.server import LabServer
from tests.lab.workloads.manifests import deployment, pod

Run = Callable[..., None]


def test_a_service_has_endpoints_as_long_as_it_lives(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment())
        await workload_lab.available("web", 3)
        item = await workload_lab.kube.get(DEPLOYMENTS, "web", "default")
        selector = item["spec"]["selector"]["matchLabels"]
        service: dict[str, Any] = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"ports": [{"port": 80}]},
        }
        service["spec"]["selector"] = selector
        await workload_lab.kube.create(SERVICES, service)
        await asyncio.sleep(2)
        found = await workload_lab.kube.get(ENDPOINTS, "web", "default")
        assert len(found["subsets"][0]["addresses"]) == 3
        assert found["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
        await workload_lab.kube.delete(SERVICES, "web", "default")
        await asyncio.sleep(2)
        names = [each["metadata"]["name"] for each in (await workload_lab.kube.list(ENDPOINTS, "default")).items]
        assert names == ["kubernetes"]

    lab_run(body)


def test_a_named_port_is_looked_up_in_the_pod() -> None:
    service = {"spec": {"ports": [{"port": 80, "targetPort": "web"}, {"port": 81, "targetPort": "none"}, {"port": 82}]}}
    assert [port["port"] for port in ports(service, {"web": 8080})] == [8080, 82]


def test_a_quota_counts_what_is_there_and_refuses_more(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, pod("one"))
        quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}}
        await workload_lab.kube.create(RESOURCEQUOTAS, quota)
        await asyncio.sleep(2)
        found = await workload_lab.kube.get(RESOURCEQUOTAS, "q", "default")
        assert found["status"] == {"hard": {"pods": "1"}, "used": {"pods": "1"}}
        with pytest.raises(Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
            await workload_lab.kube.create(PODS, pod("two"))
        await workload_lab.kube.delete(PODS, "one", "default", grace=0)
        await asyncio.sleep(2)
        assert (await workload_lab.kube.get(RESOURCEQUOTAS, "q", "default"))["status"]["used"] == {"pods": "0"}

    lab_run(body)


def test_ten_messages_for_one_reason_become_one_and_names_keep_the_order(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        recorder = workload_lab.lab.controllers.context.recorder
        about = InvolvedObject("Deployment", "talker", "default", "uid-1", "apps/v1")
        for number in range(12):
            recorder.normal(about, "Recorded", f"message {number}")
        await asyncio.sleep(1)
        items = [
            each
            for each in (await workload_lab.kube.list(CORE_EVENTS, "default")).items
            if each["reason"] == "Recorded"
        ]
        messages = [each["message"] for each in sorted(items, key=lambda each: str(each["metadata"]["name"]))]
        assert messages == [*(f"message {number}" for number in range(9)), "(combined from similar events): message 11"]

    lab_run(body)


def test_a_lab_has_the_default_roles_once() -> None:
    async def body() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        server = LabServer(clock, Chance(1))
        seed_defaults(server, clock.now())
        seed_defaults(server, clock.now())
        roles = [each["metadata"]["name"] for each in server.cluster.list("rbac.authorization.k8s.io", "clusterroles")]
        assert {"cluster-admin", "admin", "edit", "view"} <= set(roles)
        assert len(roles) == len(set(roles))

    run_virtual(body())


def test_roles_decide_for_those_the_administrator_speaks_for() -> None:
    async def body() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        server = LabServer(clock, Chance(1))
        seed_defaults(server, clock.now())

        async def pods(user: str) -> int:
            path = "/api/v1/namespaces/default/pods"
            return (await server.handle(Request(method="GET", path=path, headers={"impersonate-user": user}))).status

        assert await pods("bob") == 403
        binding = {
            "metadata": {"name": "watchers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        server.cluster.create("rbac.authorization.k8s.io", "clusterrolebindings", binding)
        assert await pods("bob") == 200
        assert await pods("system:serviceaccount:default:robot") == 403

    run_virtual(body())
