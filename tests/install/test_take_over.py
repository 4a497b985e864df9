"""`dovetail install --take-over` beside a running Karpenter, and back; `uninstall` while there are nodes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dovetail.controllers.settings import read
from dovetail.install import removal
from dovetail.install.plan import FORMER_REPLICAS, RefusedError
from dovetail.install.removal import Nodes
from dovetail.kube import resources as kinds
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.model.kinds import crds
from tests.install.install_site import (
    CLUSTER,
    Interrupted,
    Site,
    endpoint,
    tell,
)

__all__ = ["endpoint"]


def _claim(name: str) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"requirements": [], "nodeClassRef": reference},
    }


def test_uninstall_refuses_while_nodes_would_be_lost_and_keeps_them_if_asked(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        await site.install()
        await site.kube.create(kinds.NODECLAIMS, _claim("default-abcde"))
        whole = await site.state()
        with pytest.raises(RefusedError, match=r"1 node would be lost \(default-abcde\); --drain .* --keep-nodes"):
            await site.uninstall()
        assert await site.state() == whole, "a refusal touches nothing"
        await site.uninstall(Nodes.KEEP)
        account, cluster = await site.state()
        assert cluster == before[1]
        assert f"KarpenterNodeRole-{CLUSTER}" in json.loads(account)["roles"], "the nodes need their role"
        assert f"KarpenterControllerRole-{CLUSTER}" not in json.loads(account)["roles"]
        await site.uninstall()
        assert await site.state() == before

    tell(endpoint, story)


def test_a_running_karpenter_is_named_and_nothing_is_touched(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "kube-system")
        with pytest.raises(RefusedError, match=r"kube-system/karpenter already runs Karpenter.*--take-over"):
            await site.install()

    tell(endpoint, story)


def _karpenter(labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "controller",
        "image": "public.ecr.aws/karpenter/controller:1.2.1",
        "env": [
            {"name": "CLUSTER_NAME", "value": CLUSTER},
            {"name": "INTERRUPTION_QUEUE", "value": "old"},
            {"name": "FEATURE_GATES", "value": "NodeRepair=true"},
            {"name": "KARPENTER_SERVICE", "value": "k"},
            # what the chart sets itself: twice they would be refused
            {"name": "DISABLE_LEADER_ELECTION", "value": "false"},
            {"name": "LOG_LEVEL", "value": "debug"},
            {"name": "LOG_OUTPUT_PATHS", "value": "stdout"},
            {"name": "LOG_ERROR_OUTPUT_PATHS", "value": "stderr"},
            {"name": "METRICS_PORT", "value": "8080"},
            {"name": "HEALTH_PROBE_PORT", "value": "8081"},
            {"name": "SYSTEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "serviceAccountName": "karpenter"}}
    return {
        "metadata": {"name": "karpenter", "labels": labels},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


def test_take_over_stands_by_then_scales_karpenter_down_and_hand_back_returns(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.kube.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "karpenter"}}, "karpenter")
        for definition in crds.definitions():
            await site.kube.create(kinds.CRDS, definition)
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "karpenter")
        await asyncio.sleep(60.0)
        await site.kube.create(kinds.NODECLAIMS, _claim("default-abcde"))
        before, claim = await site.state(), await site.kube.get(kinds.NODECLAIMS, "default-abcde")

        for after in (1, 3, 2, None):
            if after is None:
                await site.take_over()
                continue
            with pytest.raises(Interrupted):
                await site.take_over(after=after)
        deployment = await site.kube.get(kinds.DEPLOYMENTS, "dovetail", "karpenter")
        pod = deployment["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == "karpenter", "the role that Karpenter had"
        variables = {row["name"]: row.get("value") for row in pod["containers"][0]["env"]}
        assert len(variables) == len(pod["containers"][0]["env"])
        assert variables["LOG_LEVEL"] == "debug"
        assert variables["LEADER_ELECTION_NAMESPACE"] == "karpenter", "the lease that Karpenter held"
        assert (variables["INTERRUPTION_QUEUE"], variables["FEATURE_GATES"]) == ("old", "NodeRepair=true")
        assert read({}, {name: value for name, value in variables.items() if value}).cluster_name == CLUSTER
        karpenter = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert karpenter["spec"]["replicas"] == 0
        shown = [
            (change.why, change.steps[0].command) for title, change in site.shown if title.endswith("er/karpenter")
        ]
        assert any(why == "scaled from 2 to 0" and " -p " in command for why, command in shown)
        assert (await site.state())[0] == before[0], "nothing at AWS changes"
        assert await site.kube.get(kinds.NODECLAIMS, "default-abcde") == claim, "no node is touched"
        assert await site.take_over() == [], "a repetition changes nothing"

        with pytest.raises(Interrupted):
            await site.hand_back(after=3)
        await site.hand_back()
        assert await site.state() == before
        assert await site.kube.get(kinds.NODECLAIMS, "default-abcde") == claim

    tell(endpoint, story, nodes=4)


def test_replicas_that_are_set_while_ours_ends_stay(endpoint: AwsEndpoint) -> None:
    """By another `--hand-back` that was through first, and by an operator: the last step is about the annotation."""

    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.kube.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "karpenter"}}, "karpenter")
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "karpenter")
        await asyncio.sleep(60.0)
        await site.take_over()
        order: list[str] = []

        async def return_first() -> None:
            for _ in range(3000):
                names = {row["metadata"]["name"] for row in (await site.kube.list(kinds.DEPLOYMENTS)).items}
                if "dovetail" not in names:
                    break
                await asyncio.sleep(0.1)
            body = {"metadata": {"annotations": {FORMER_REPLICAS: None}}, "spec": {"replicas": 3}}
            await site.kube.patch(kinds.DEPLOYMENTS, "karpenter", body, "karpenter", manager="operator")
            order.append("first")

        async def return_second() -> None:
            await site.hand_back()
            order.append("second")

        await asyncio.gather(return_first(), return_second())
        assert order == ["first", "second"]
        karpenter = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert karpenter["spec"]["replicas"] == 3
        assert FORMER_REPLICAS not in (karpenter["metadata"].get("annotations") or {})

    tell(endpoint, story, nodes=4)


def test_ours_leads_until_karpenter_stands_by_again(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.kube.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "karpenter"}}, "karpenter")
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "karpenter")
        await asyncio.sleep(60.0)
        await site.take_over()
        nowhere = {"spec": {"template": {"spec": {"nodeSelector": {"no": "such"}}}}}
        await site.kube.patch(kinds.DEPLOYMENTS, "karpenter", nowhere, "karpenter", manager="operator")
        with pytest.raises(
            RefusedError, match=r"karpenter/karpenter: pods of an earlier revision still run: 2 after 60 s"
        ):
            await site.hand_back()
        ours = await site.kube.get(kinds.DEPLOYMENTS, "dovetail", "karpenter")
        assert ours["status"]["availableReplicas"] >= 1

    tell(endpoint, story, nodes=4)


def test_take_over_leaves_karpenter_alone_until_ours_is_ready(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "karpenter")
        with pytest.raises(RefusedError, match="Karpenter still runs"):
            await site.take_over(wait_s=30.0)  # no node is there for our pods
        karpenter = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert karpenter["spec"]["replicas"] == 2

    tell(endpoint, story)


def test_taints_of_planned_bindings_do_not_outlive_us(endpoint: AwsEndpoint) -> None:
    """Nor the cordon of a node that waited for its DaemonSet pods."""

    async def story(site: Site) -> None:
        await site.install()
        names = [node["metadata"]["name"] for node in (await site.kube.list(kinds.NODES)).items]
        assert len(names) == 2
        for name, effect, cordon in zip(names, ("NoSchedule", "PreferNoSchedule"), (None, True), strict=True):
            taint = {"key": removal.PLACING_TAINT, "effect": effect}
            await site.kube.patch(kinds.NODES, name, {"spec": {"taints": [taint], "unschedulable": cordon}})
        await site.uninstall()
        specs = [node["spec"] for node in (await site.kube.list(kinds.NODES)).items]
        assert [(spec.get("taints"), spec.get("unschedulable")) for spec in specs] == [(None, None)] * 2

    tell(endpoint, story, nodes=2)
