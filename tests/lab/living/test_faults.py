"""What goes wrong is mended: after each fault the cluster comes to rest in the right state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from living_manifests import deployment

from dovetail.kube.errors import Conflict
from dovetail.kube.resources import DEPLOYMENTS, NODES
from dovetail.lab.faults import Fault, UnknownFault

Run = Callable[..., None]


async def _conditions(living: Any, node: str) -> dict[str, str]:
    item = await living.kube.get(NODES, node)
    return {each["type"]: each["status"] for each in item["status"]["conditions"]}


def test_a_node_that_never_spoke_is_given_a_minute(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        await living.kube.create(NODES, {"metadata": {"name": "mute"}})
        await asyncio.sleep(57)
        assert "conditions" not in (await living.kube.get(NODES, "mute"))["status"]
        await asyncio.sleep(10)
        assert (await _conditions(living, "mute"))["Ready"] == "Unknown"

    lab_run(body)


def test_a_silent_kubelet_makes_its_node_unknown_and_comes_back(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        node = sorted(living.lab.fleet.seats)[0]
        living.lab.faults.strike(Fault(kind="kubelet-silent", node=node, seconds=120))
        await asyncio.sleep(70)
        assert (await _conditions(living, node))["Ready"] == "Unknown"
        taints = {(each["key"], each["effect"]) for each in (await living.kube.get(NODES, node))["spec"]["taints"]}
        assert ("node.kubernetes.io/unreachable", "NoExecute") in taints
        await asyncio.sleep(70)
        assert (await _conditions(living, node))["Ready"] == "True"
        assert "taints" not in (await living.kube.get(NODES, node))["spec"]

    lab_run(body)


def test_pods_of_a_machine_that_is_gone_are_replaced_after_their_patience(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        await living.kube.create(DEPLOYMENTS, deployment(replicas=6))
        await living.available("web", 6)
        node = (await living.pods("web"))[0]["spec"]["nodeName"]
        living.lab.faults.strike(Fault(kind="machine-gone", node=node))
        await asyncio.sleep(60 + 300 + 60)
        alive = [each for each in await living.pods("web") if each["spec"].get("nodeName") != node]
        assert sum(each["status"]["phase"] == "Running" for each in alive) == 6
        await living.kube.delete(NODES, node)
        await asyncio.sleep(120)
        assert len(await living.pods("web")) == 6

    lab_run(body)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="api-down", seconds=20),
        Fault(kind="api-slow", seconds=20, amount=2),
        Fault(kind="conflict-storm", seconds=20, amount=0.6),
        Fault(kind="watch-cut"),
        Fault(kind="watch-stale", seconds=20),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_rollout_survives_a_broken_api_server(lab_run: Run, fault: Fault) -> None:
    async def body(living: Any) -> None:
        await living.kube.create(DEPLOYMENTS, deployment(replicas=4))
        await living.available("web", 4)
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
        await living.kube.patch(DEPLOYMENTS, "web", change, "default", kind="strategic")
        await asyncio.sleep(1)
        living.lab.faults.strike(fault)
        await asyncio.sleep(90)
        await living.available("web", 4)
        assert len(await living.pods("web")) == 4

    lab_run(body)


def test_a_storm_of_conflicts_speaks_of_the_object_as_a_conflict_does(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        living.lab.faults.strike(Fault(kind="conflict-storm", seconds=20, amount=1.0))
        with pytest.raises(Conflict, match=r'fulfilled on deployments\.apps "web": the object has been modified'):
            await living.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, "default")

    lab_run(body, nodes=1)


def test_a_clock_is_wrong_by_minutes_unless_told_otherwise(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        told = living.lab.faults.strike(Fault(kind="clock-skew", seconds=20))
        assert told.endswith("is off by 300 s for 20 s")

    lab_run(body, nodes=1)


def test_an_unknown_fault_names_those_there_are(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        with pytest.raises(UnknownFault, match="no fault 'meteor'; there are api-down"):
            living.lab.faults.strike(Fault(kind="meteor"))

    lab_run(body, nodes=1)


def test_a_node_may_be_called_by_the_first_part_of_its_name(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        told = living.lab.faults.strike(Fault(kind="kubelet-silent", node="ip-10-0-0-11"))
        assert "ip-10-0-0-11.us-west-2.compute.internal" in told
        with pytest.raises(UnknownFault, match="no machine 'ip-10-0' runs here"):
            living.lab.faults.strike(Fault(kind="kubelet-silent", node="ip-10-0"))

    lab_run(body, nodes=2)
