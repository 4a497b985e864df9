"""Labelled cases in a running cluster, in virtual time: the explanation, the event and the history agree on the cause.

A decoy of another team is in every cluster; the pod may never use it, so nothing may blame it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from dovetail.cloud.simulated.config import SimulatedMarket, Some, Stock
from dovetail.kube import resources as kinds
from tests.controllers.test_explain import ask
from tests.controllers.test_explain_pending import READY, _class, unresolved

RunScenario = Callable[..., None]
__all__ = ["unresolved"]
ZONE, CAPACITY = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
ON_DEMAND = {"key": CAPACITY, "operator": "In", "values": ["on-demand"]}
MINE = {"nodeSelector": {"team": "pay"}}


class Case(NamedTuple):
    """What is wrong, the expected first cause and the object to change (None: the pod)."""

    name: str
    code: str
    blamed: str | None
    pool: dict[str, Any]
    pod: dict[str, Any]
    before: Callable[[Any], Awaitable[None]] | None = None


def need(key: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values), **more}


def term(**expression: Any) -> dict[str, Any]:
    rule = {"topologyKey": ZONE, "labelSelector": {"matchLabels": expression}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}


async def _pool_deleted(world: Any) -> None:
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.kube.patch(kinds.NODEPOOLS, "mine", finalizers)
    await world.kube.delete(kinds.NODEPOOLS, "mine")


async def _class_broken(world: Any) -> None:
    condition = {"type": "AMIsReady", "status": "False", "reason": "AMINotFound", "message": "no AMI matches"}
    await _class(world, "mine", **condition)


async def _bound_volume(world: Any) -> None:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "claimRef": {"namespace": "default", "name": "data"},
        "storageClassName": "gp3",
    }
    await world.kube.create(kinds.PERSISTENTVOLUMES, {"metadata": {"name": "pv"}, "spec": spec})
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": "pv",
        "storageClassName": "gp3",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    made = {"metadata": {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": claim}
    await world.kube.create(kinds.PERSISTENTVOLUMECLAIMS, made, "default")
    bound = {"status": {"phase": "Bound"}}
    await world.kube.patch(kinds.PERSISTENTVOLUMECLAIMS, "data", bound, "default", subresource="status")


DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 5}
TAINTED = {"template": {"taints": [{"key": "batch", "effect": "NoSchedule"}]}}
NAMED_CLASS = {
    "template": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "mine"}},
}

CASES = (
    Case("cpu", "NO_TYPE_FITS", "nodepool/mine", {}, {"cpu": "64"}),
    Case(
        "small-pool",
        "NO_TYPE_FITS",
        "nodepool/mine",
        {"requirements": [ON_DEMAND, need("node.kubernetes.io/instance-type", "m.large")]},
        {"cpu": "3"},
    ),
    Case("unknown-label", "UNKNOWN_LABEL", None, {}, {"nodeSelector": {"tier": "gold"}}),
    Case("misspelt-value", "NO_TYPE_MATCHES", None, {}, {"nodeSelector": {"team": "pya"}}),
    Case(
        "zone",
        "NO_TYPE_MATCHES",
        None,
        {"requirements": [ON_DEMAND, need(ZONE, "a")]},
        {"nodeSelector": {"team": "pay", ZONE: "b"}},
    ),
    Case("arch", "NO_TYPE_MATCHES", None, {}, {"nodeSelector": {"team": "pay", "kubernetes.io/arch": "arm64"}}),
    Case("spot", "NO_TYPE_MATCHES", None, {}, {"nodeSelector": {"team": "pay", CAPACITY: "spot"}}),
    Case("taint", "UNTOLERATED_TAINT", None, TAINTED, {}),
    Case("cpu-limit", "LIMIT_REACHED", "nodepool/mine", {"limits": {"cpu": "1"}}, {}),
    Case("node-limit", "LIMIT_REACHED", "nodepool/mine", {"limits": {"nodes": "0"}}, {}),
    Case(
        "min-values",
        "MIN_VALUES",
        "nodepool/mine",
        {
            "requirements": [
                ON_DEMAND,
                need("node.kubernetes.io/instance-type", "m.large", "m.xlarge", "m.2xlarge", minValues=3),
            ]
        },
        {"cpu": "3"},
    ),
    Case("own-zone", "NO_TYPE_MATCHES", "nodepool/mine", {"requirements": [ON_DEMAND, need(ZONE, "nowhere")]}, {}),
    Case(
        "letters",
        "NO_TYPE_MATCHES",
        "nodepool/mine",
        {"requirements": [ON_DEMAND, need("node.kubernetes.io/instance-type", "c", "m")]},
        {},
    ),
    Case("affinity", "AFFINITY", "nodepool/mine", {}, {"affinity": {"podAffinity": term(app="database")}}),
    Case(
        "spread",
        "SPREAD",
        "nodepool/mine",
        {},
        {"count": 3, "topologySpreadConstraints": [{**SPREAD, "labelSelector": {"matchLabels": {"app": "p"}}}]},
    ),
    Case(
        "anti-affinity",
        "ANTI_AFFINITY",
        "nodepool/mine",
        {},
        {"count": 3, "affinity": {"podAntiAffinity": term(app="p")}},
    ),
    Case(
        "gpu",
        "NO_TYPE_FITS",
        None,
        {},
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
                }
            ]
        },
    ),
    Case("missing-claim", "VOLUME_MISSING", None, {}, DATA),
    Case("volume-zone", "VOLUME_ZONE", None, {"requirements": [ON_DEMAND, need(ZONE, "a")]}, DATA, _bound_volume),
    Case("leaving", "NO_NODEPOOL", "nodepool/mine", {}, {}, _pool_deleted),
    Case("class", "BAD_NODECLASS", "ec2nodeclass/mine", NAMED_CLASS, {}, _class_broken),
    Case("gated", "GATED", None, {}, {"schedulingGates": [{"name": "example.com/quota"}]}),
)


async def _cluster(world: Any, case: Case) -> None:
    await _class(world, "default", **READY)
    await world.pool("mine", metadata={"labels": {"team": "pay"}}, **case.pool)
    await world.pool("other", metadata={"labels": {"team": "web"}}, requirements=[ON_DEMAND, need(ZONE, "a", "b")])
    if case.before is not None:
        await case.before(world)
    world.start()
    await asyncio.sleep(2)
    await world.pods(case.pod.get("count", 1), **{**MINE, **{k: v for k, v in case.pod.items() if k != "count"}})
    await asyncio.sleep(45)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_cause_in_a_running_cluster(run_scenario: RunScenario, unresolved: None, case: Case) -> None:
    async def scenario(world: Any) -> None:
        await _cluster(world, case)
        name = next(name for name, node in (await world.bound()).items() if not node)
        answer = ask(world, "pod", f"default/{name}")
        assert (answer.code, answer.object) == (case.code, case.blamed or f"pod/default/{name}"), answer.line
        assert "NodePool other" not in answer.line or case.blamed is None
        if case.code != "GATED":
            said = answer.line.removeprefix("pending: ")
            events = await world.list(kinds.CORE_EVENTS)
            messages = [event["message"] for event in events if event["reason"] == "FailedScheduling"]
            assert f"Failed to schedule pod, {said}" in messages

    run_scenario(scenario)


def test_what_is_out_of_capacity_is_not_called_too_small(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(90)
        answer = ask(world, "pod", "default/p0")
        assert answer.code == "NO_OFFERING", answer.line
        assert answer.object == "nodepool/default"

    nothing = Stock(**dict.fromkeys(Some.__struct_fields__, "*"), instances=0)
    run_scenario(scenario, market=SimulatedMarket(stock=(nothing,)))
