"""Karpenter's ClusterRole is enough to provision; what needs more is off, and named once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.controllers.history.store import NAMESPACE
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.rights import BIND_PODS, TRIED_AGAIN_AFTER_S
from dovetail.controllers.settings import Settings, read
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.in_process import InProcess

RunScenario = Callable[..., None]
READ = frozenset({"get", "list", "watch"})
#: What Karpenter's chart grants: the core ClusterRole, that of the provider, and the Role in the release's namespace.
CHART: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "nodepools",
            "nodeclaims",
            "nodeoverlays",
            "ec2nodeclasses",
            "pods",
            "nodes",
            "persistentvolumes",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "namespaces",
            "storageclasses",
            "csinodes",
            "volumeattachments",
            "daemonsets",
            "deployments",
            "replicasets",
            "statefulsets",
            "poddisruptionbudgets",
        ),
        READ,
    ),
    "nodeclaims": READ | {"create", "delete", "update", "patch"},
    "nodeclaims/status": frozenset({"create", "delete", "update", "patch"}),
    "nodepools": READ | {"update", "patch"},
    "nodepools/status": frozenset({"update", "patch"}),
    "nodeoverlays/status": frozenset({"update", "patch"}),
    "ec2nodeclasses": READ | {"update", "patch"},
    "ec2nodeclasses/status": frozenset({"update", "patch"}),
    "events": frozenset({"create", "patch"}),
    "nodes": READ | {"create", "patch", "delete", "update"},
    "pods/eviction": frozenset({"create"}),
    "pods": READ | {"delete"},
    "leases": frozenset({"get", "list", "watch", "create", "patch", "update"}),
}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Authorizer:
    """A transport with the rights of a role: what it does not grant is forbidden, and noted."""

    def __init__(self, inner: Transport, granted: dict[str, frozenset[str]]) -> None:
        self._inner = inner
        self.granted = granted
        self.denied: set[str] = set()

    async def send(self, request: Request) -> Response:
        verb, resource = _asked(request)
        if verb not in self.granted.get(resource, frozenset()):
            self.denied.add(f"{verb} {resource}")
            status = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": f"may not {verb} {resource}"}
            return Response(status=403, body=json.dumps(status).encode())
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


def _asked(request: Request) -> tuple[str, str]:
    parts = request.path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join((rest[0], *rest[2:]))
    if request.method != "GET":
        return VERBS[request.method], resource
    return ("watch" if request.parameter("watch") else "list" if len(rest) == 1 else "get"), resource


def test_it_provisions_and_disrupts_with_exactly_karpenters_chart_rbac_and_names_what_is_off(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        rights = world.transport._inner = Authorizer(InProcess(world.server), dict(CHART))
        await world.pods(3, cpu="1500m")

        async def initialized() -> bool:
            claims = await world.list(kinds.NODECLAIMS)
            ready = [(await world.conditions(claim)).get("Initialized") for claim in claims]
            return len(ready) == 3 and set(ready) == {"True/Initialized"}

        await world.until(initialized, within=180)
        nodes = await world.list(kinds.NODES)
        assert len(nodes) == 3 and not any(node["spec"].get("taints") for node in nodes), "the scheduler binds"
        await asyncio.sleep(60)
        named = [line["right"] for line in world.logged("missing right")]
        watches = ["list events", "list priorityclasses.scheduling.k8s.io"]
        assert sorted(named) == ["create configmaps", "create pods/binding", *watches]
        ours = {"create configmaps", "create pods/binding", "watch priorityclasses", "list configmaps", "list events"}
        old = {"list provisioners", "list awsnodetemplates"}
        assert rights.denied <= ours | old
        scaler = world.autoscaler
        assert scaler.problems() == [] and not scaler.safety.safe_mode
        assert [line.split(":")[0] for line in scaler.remarks()] == [f"missing right, {each}" for each in named]
        assert b'dovetail_missing_rights{resource="pods/binding",verb="create"} 1.0' in scaler.metrics.text()

        rights.granted |= {"pods/binding": frozenset({"create"}), "configmaps": frozenset({"create", "patch", "list"})}
        rights.granted["priorityclasses"] = READ
        rights.granted["events"] = rights.granted["events"] | READ
        await asyncio.sleep(TRIED_AGAIN_AFTER_S)
        await world.pods(1, cpu="1500m", prefix="q")
        await world.until(lambda: _bound(world, "q0"))
        assert scaler.remarks() == []

    run_scenario(scenario, only=("m.large",))


async def _bound(world: Any, name: str) -> bool:
    return bool((await world.bound())[name])


def test_a_denied_binding_taints_no_further_node_for_it(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        rights = world.autoscaler.rights
        rights.deny(BIND_PODS, "no")
        assert rights.is_denied(BIND_PODS)
        await asyncio.sleep(TRIED_AGAIN_AFTER_S + 1)
        assert not rights.is_denied(BIND_PODS), "it may have been granted meanwhile"

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("environment", "pod", "expected"),
    [
        ({}, "", NAMESPACE),
        ({}, "karpenter", "karpenter"),
        ({"SYSTEM_NAMESPACE": "autoscaling"}, "karpenter", "autoscaling"),
        ({"SYSTEM_NAMESPACE": "autoscaling", "LEADER_ELECTION_NAMESPACE": "leases"}, "karpenter", "leases"),
    ],
)
def test_the_lease_is_in_the_pods_own_namespace_unless_settings_say_otherwise(
    run_scenario: RunScenario, environment: dict[str, str], pod: str, expected: str
) -> None:
    """Karpenter's is there too: the two never lead at once."""

    async def scenario(world: Any) -> None:
        settings: Settings = read({}, {**environment, "METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0"})
        kube = Kube(InProcess(world.server), world.clock, chance=world.chance)
        await _namespace(world, expected)
        scaler = Autoscaler(kube, world.cloud, world.clock, world.chance, settings, namespace=pod)
        running = asyncio.ensure_future(scaler.run())
        await asyncio.sleep(5)
        leases = [
            (lease["metadata"]["namespace"], lease["metadata"]["name"]) for lease in await world.list(kinds.LEASES)
        ]
        assert leases == [(expected, "karpenter-leader-election")]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_scenario(scenario)


async def _namespace(world: Any, name: str) -> None:
    if name != NAMESPACE:
        await world.kube.create(kinds.NAMESPACES, {"metadata": {"name": name}})
