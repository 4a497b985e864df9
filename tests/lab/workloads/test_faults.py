"""What goes wrong is mended: after each fault the cluster comes to rest in the right state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.kube.errors import ApiError, Conflict
from dovetail.kube.resources import DEPLOYMENTS, NODES
from dovetail.lab.durations import Seconds
from dovetail.lab.faults.injection import PATH, Faults
from dovetail.lab.faults.kinds import InjectedFault, UnknownFault
from tests.lab.workloads.manifests import deployment

Run = Callable[..., None]


async def _conditions(workload_lab: Any, node: str) -> dict[str, str]:
    item = await workload_lab.kube.get(NODES, node)
    return {each["type"]: each["status"] for each in item["status"]["conditions"]}


def test_a_node_that_never_spoke_is_given_a_minute(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(NODES, {"metadata": {"name": "mute"}})
        await asyncio.sleep(57)
        assert "conditions" not in (await workload_lab.kube.get(NODES, "mute"))["status"]
        await asyncio.sleep(10)
        assert (await _conditions(workload_lab, "mute"))["Ready"] == "Unknown"

    lab_run(body)


def test_a_silent_kubelet_makes_its_node_unknown_and_comes_back(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        node = sorted(workload_lab.lab.fleet.seats)[0]
        workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-silent", node=node, seconds=Seconds(120)))
        await asyncio.sleep(70)
        assert (await _conditions(workload_lab, node))["Ready"] == "Unknown"
        taints = {
            (each["key"], each["effect"]) for each in (await workload_lab.kube.get(NODES, node))["spec"]["taints"]
        }
        assert ("node.kubernetes.io/unreachable", "NoExecute") in taints
        await asyncio.sleep(70)
        assert (await _conditions(workload_lab, node))["Ready"] == "True"
        assert "taints" not in (await workload_lab.kube.get(NODES, node))["spec"]

    lab_run(body)


def test_pods_of_a_vanished_instance_are_replaced_after_their_toleration(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=6))
        await workload_lab.available("web", 6)
        node = (await workload_lab.pods("web"))[0]["spec"]["nodeName"]
        workload_lab.lab.faults.inject(InjectedFault(kind="instance-gone", node=node))
        await asyncio.sleep(60 + 300 + 60)
        alive = [each for each in await workload_lab.pods("web") if each["spec"].get("nodeName") != node]
        assert sum(each["status"]["phase"] == "Running" for each in alive) == 6
        await workload_lab.kube.delete(NODES, node)
        await asyncio.sleep(120)
        assert len(await workload_lab.pods("web")) == 6

    lab_run(body)


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(kind="api-down", seconds=Seconds(20)),
        InjectedFault(kind="api-slow", seconds=Seconds(20), amount=2),
        InjectedFault(kind="conflict-storm", seconds=Seconds(20), amount=0.6),
        InjectedFault(kind="watch-cut"),
        InjectedFault(kind="watch-stale", seconds=Seconds(20)),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_rollout_survives_a_broken_api_server(lab_run: Run, fault: InjectedFault) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=4))
        await workload_lab.available("web", 4)
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
        await workload_lab.kube.patch(DEPLOYMENTS, "web", change, "default", kind="strategic")
        await asyncio.sleep(1)
        workload_lab.lab.faults.inject(fault)
        await asyncio.sleep(90)
        await workload_lab.available("web", 4)
        assert len(await workload_lab.pods("web")) == 4

    lab_run(body)


def test_a_storm_of_conflicts_speaks_of_the_object_as_a_conflict_does(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        workload_lab.lab.faults.inject(InjectedFault(kind="conflict-storm", seconds=Seconds(20), amount=1.0))
        with pytest.raises(Conflict, match=r'fulfilled on deployments\.apps "web": the object has been modified'):
            await workload_lab.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, "default")

    lab_run(body, nodes=1)


def test_clock_skew_is_minutes_by_default(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        description = workload_lab.lab.faults.inject(InjectedFault(kind="clock-skew", seconds=Seconds(20)))
        assert description.endswith("is off by 300 s for 20 s")

    lab_run(body, nodes=1)


def test_an_unknown_fault_names_those_there_are(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        with pytest.raises(UnknownFault, match="no fault 'meteor'; there are api-down"):
            workload_lab.lab.faults.inject(InjectedFault(kind="meteor"))

    lab_run(body, nodes=1)


def test_a_node_may_be_called_by_the_first_part_of_its_name(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        description = workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-silent", node="ip-10-0-0-11"))
        assert "ip-10-0-0-11.us-west-2.compute.internal" in description
        with pytest.raises(UnknownFault, match="no node 'ip-10-0' runs here"):
            workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-silent", node="ip-10-0"))

    lab_run(body, nodes=2)


def test_a_kind_that_is_nearly_right_is_named(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        with pytest.raises(UnknownFault, match="no fault 'kubelet-slient'; did you mean kubelet-silent"):
            workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-slient"))

    lab_run(body, nodes=1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "api-throttled", "amount": 7}, "a share of 1, such as 0.5, not 7"),
        ({"kind": "api-slow", "amount": -3}, "above 0, such as 1, not -3"),
        ({"kind": "api-slow", "node": "1"}, "strikes the whole API server; leave the node out"),
        ({"kind": "api-down", "amount": 2}, "all or nothing; leave the amount out"),
        ({"kind": "api-slow", "amount": float("nan")}, "not a number"),
    ],
)
def test_what_would_be_ignored_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        InjectedFault(**asked)


def test_a_second_silence_is_not_ended_by_the_first(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        node = sorted(workload_lab.lab.fleet.seats)[0]
        workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-silent", node=node, seconds=Seconds(30)))
        await asyncio.sleep(20)
        workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-silent", node=node, seconds=Seconds(120)))
        await asyncio.sleep(40)
        assert (await _conditions(workload_lab, node))["Ready"] == "Unknown", "50 s after the first word it did not say"
        await asyncio.sleep(100)
        assert (await _conditions(workload_lab, node))["Ready"] == "True"

    lab_run(body, nodes=1)


def test_a_lasting_fault_is_listed_and_can_be_ended(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        faults = workload_lab.lab.faults
        for kind in ("api-down", "watch-stale"):
            assert faults.inject(InjectedFault(kind=kind, seconds=Seconds(0))).endswith(" for good")
        faults.inject(InjectedFault(kind="clock-skew", seconds=Seconds(90)))
        description = await _knock(workload_lab, "GET", None)
        node = sorted(workload_lab.lab.fleet.seats)[0]
        assert description.split("\n") == [
            "api-down, for good",
            f"clock-skew of {node}, 90 s more",
            "watch-stale, for good",
        ]
        with pytest.raises(ApiError):
            await workload_lab.kube.get(DEPLOYMENTS, "web", "default")
        assert (
            await _knock(workload_lab, "POST", {"kind": "mend"})
            == f"mended: api-down, clock-skew of {node}, watch-stale"
        )
        assert await _knock(workload_lab, "GET", None) == "nothing is broken"
        assert await _knock(workload_lab, "POST", {"kind": "mend"}) == "nothing was broken"
        await workload_lab.kube.create(DEPLOYMENTS, deployment(replicas=1))
        await workload_lab.available("web", 1)

    lab_run(body, nodes=1)


def test_the_api_server_of_others_is_not_ours_to_break(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        faults = Faults(workload_lab.lab.fleet, workload_lab.lab.clock, workload_lab.lab.chance, own_server=False)
        with pytest.raises(UnknownFault, match="api-slow breaks the lab's own API server, and this one is Kubernetes'"):
            faults.inject(InjectedFault(kind="api-slow"))
        assert faults.inject(InjectedFault(kind="kubelet-silent")).endswith(" is silent for 60 s")

    lab_run(body, nodes=1)


def test_every_kubelet_is_one_word(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        workload_lab.lab.faults.inject(InjectedFault(kind="kubelet-silent", node="*"))
        assert await _knock(workload_lab, "GET", None) == "kubelet-silent of 3 nodes, 60 s more"
        assert await _knock(workload_lab, "POST", {"kind": "mend"}) == "mended: kubelet-silent of 3 nodes"

    lab_run(body, nodes=3)


async def _knock(workload_lab: Any, method: str, body: dict[str, Any] | None) -> str:
    response = await workload_lab.kube.request(method, PATH, body=body)
    return str(msgspec.json.decode(response.body)["message"])
