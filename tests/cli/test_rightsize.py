"""`dovetail rightsize`: what requests cost by planning them, and what is said where usage is not known."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from dovetail.autoscalers.vpa import checkpoints
from dovetail.autoscalers.vpa.api import VPAS
from dovetail.autoscalers.vpa.crds import definitions
from dovetail.autoscalers.vpa.estimators import EstimatorSettings
from dovetail.autoscalers.vpa.rightsizing import (
    ContainerAdvice,
    UsageEvidence,
    WorkloadAdvice,
    WorkloadKey,
    advise,
    share_above,
    workload_of,
)
from dovetail.autoscalers.vpa.rightsizing_cost import FleetCost, RightsizingReport
from dovetail.autoscalers.vpa.rightsizing_writes import as_patches, as_vpas, write_patches, write_vpas
from dovetail.autoscalers.vpa.usage import Aggregation, ContainerUsage
from dovetail.cli.rightsize import nothing_to_apply, rightsize
from dovetail.clock import run_virtual
from dovetail.errors import UserError
from dovetail.kube.resources import CRDS, DEPLOYMENTS, Resource
from dovetail.lab.cluster import Lab
from dovetail.language import in_language
from dovetail.language.columns import width_of
from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pods import Pod

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
START = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(name: str, replicas: int, cpu: str, memory: str) -> dict[str, Any]:
    labels = {"app": name}
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    container = {"name": "main", "image": "nginx", "resources": resources}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def vpa(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": f"{name}-vpa", "namespace": "shop"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
    }


def used(hours: int, millicores: int, memory: int = 300 * 2**20) -> Aggregation:
    usage = ContainerUsage(Aggregation())
    for minute in range(0, hours * 60 + 1, 10):
        time_s = (START + timedelta(minutes=minute)).timestamp()
        usage.add_cpu(millicores, time_s)
        usage.add_memory(memory, time_s)
    return usage.aggregation


def checkpoint(name: str, usage: Aggregation) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": f"{name}-vpa-main", "namespace": "shop"},
        "spec": {"vpaObjectName": f"{name}-vpa", "containerName": "main"},
        "status": checkpoints.saved(usage, START),
    }


def run(folder: Path, *objects: dict[str, Any], flags: tuple[str, ...] = ("-o", "json")) -> str:
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    result = CliRunner().invoke(rightsize, ["-f", str(file), "--region", "us-west-2", *flags], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_requests_that_follow_usage_cost_less(tmp_path: Path) -> None:
    report = json.loads(
        run(
            tmp_path,
            deployment("large", 20, "2", "4Gi"),
            vpa("large"),
            checkpoint("large", used(48, 250)),
            deployment("unseen", 4, "500m", "1Gi"),
        )
    )
    cost = report["cost"]
    assert cost["plannedAfter"] < cost["plannedNow"] / 2
    assert 0 < cost["lowerBoundAfter"] <= cost["plannedAfter"]
    assert cost["nodesNow"] is None  # there are no nodes in the input
    large, unseen = report["workloads"]
    assert (large["name"], large["pods"], large["historyHours"]) == ("large", 20, 48.0)
    assert large["containers"][0]["proposed"]["cpu"] == "296m"
    assert large["containers"][0]["shareAboveProposal"] == {"cpu": 0.0, "memory": 0.0}
    assert large["savingPerMonth"] == pytest.approx(cost["plannedNow"] - cost["plannedAfter"], rel=0.25)
    assert unseen["unknown"] == "no usage is known of container main"
    assert unseen["savingPerMonth"] is None
    assert unseen["containers"][0]["proposed"] == {}


def test_what_kubelets_granted_running_pods_is_not_what_new_ones_ask_for(tmp_path: Path) -> None:
    """Kubelets report the resources in force since in-place resize; with them every proposal seemed to save nothing."""
    workload = deployment("large", 8, "2", "4Gi")
    resources = workload["spec"]["template"]["spec"]["containers"][0]["resources"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "large-1", "uid": "u", "controller": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"large-1-{number}",
                "namespace": "shop",
                "labels": {"app": "large", "pod-template-hash": "1"},
                "ownerReferences": [owner],
            },
            "spec": {**workload["spec"]["template"]["spec"], "nodeName": "n1"},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "main", "resources": resources, "allocatedResources": resources["requests"]}
                ],
            },
        }
        for number in range(8)
    ]
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    report = json.loads(run(tmp_path, node, *pods, vpa("large"), checkpoint("large", used(48, 250))))
    assert report["cost"]["plannedAfter"] < report["cost"]["plannedNow"] / 2
    assert report["workloads"][0]["savingPerMonth"] > 0


@pytest.mark.parametrize(("sold", "dollars"), [("ON_DEMAND", 0.096 * 730), ("SPOT", None)])
def test_nodes_of_a_node_group_cost_the_list_price(tmp_path: Path, sold: str, dollars: float | None) -> None:
    """Nodes that no NodeClaim launched have no price of their own; that of spot is on no list."""
    place = {"topology.kubernetes.io/region": "us-west-2", "topology.kubernetes.io/zone": "us-west-2a"}
    labels = {**place, "node.kubernetes.io/instance-type": "m5.large", "eks.amazonaws.com/capacityType": sold}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    objects = (deployment("web", 1, "1", "1Gi"), node)
    cost = json.loads(run(tmp_path, *objects))["cost"]
    assert cost["nodesNow"] == (None if dollars is None else pytest.approx(dollars, abs=0.01))
    assert cost["nodesWithoutPrice"] == ([] if dollars is not None else ["n1"])
    assert ("no price is known of n1: spot" in run(tmp_path, *objects, flags=())) == (dollars is None)


def standing(name: str, node: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """A running pod of a Deployment of its own name, with a container `main`."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-1", "uid": name, "controller": True}
    labels = {"app": name, "pod-template-hash": "1"}
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-1-a", "namespace": "shop", "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [container], **spec},
        "status": {"phase": "Running"},
    }


def m5_large(name: str) -> dict[str, Any]:
    labels = {
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2a",
        "node.kubernetes.io/instance-type": "m5.large",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    amounts = {"cpu": "1930m", "memory": "7000Mi", "pods": "29"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


AWAY_FROM_NODEPOOLS = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}]
        }
    }
}


def test_nodes_of_pods_that_no_new_node_takes_are_kept_and_paid(tmp_path: Path) -> None:
    """Karpenter's chart keeps its pods off the nodes of NodePools: on every such cluster the sums were unknown."""
    controller = standing("karpenter", "n1", "1", affinity=AWAY_FROM_NODEPOOLS)
    objects = (
        m5_large("n1"),
        m5_large("n2"),
        controller,
        deployment("large", 20, "2", "4Gi"),
        vpa("large"),
        checkpoint("large", used(48, 250)),
    )
    cost = json.loads(run(tmp_path, *objects))["cost"]
    assert cost["nodesKept"] == ["n1"]
    assert cost["unschedulableNow"] == cost["unschedulableAfter"] == []
    alone = json.loads(run(tmp_path, *objects[3:]))["cost"]
    kept = 0.096 * 730
    assert alone["plannedAfter"] < cost["plannedAfter"] <= alone["plannedAfter"] + kept + 0.01
    assert kept < cost["lowerBoundAfter"] <= cost["plannedAfter"]
    assert "every plan keeps and pays n1: some of their pods fit no new node" in run(tmp_path, *objects, flags=())


def test_what_a_kept_node_has_room_for_costs_nothing_more(tmp_path: Path) -> None:
    controller = standing("karpenter", "n1", "100m", affinity=AWAY_FROM_NODEPOOLS)
    web = standing("web", "n1", "1")
    cost = json.loads(run(tmp_path, m5_large("n1"), controller, web))["cost"]
    assert cost["plannedNow"] == pytest.approx(0.096 * 730, abs=0.01)


def test_pods_without_a_place_are_named(tmp_path: Path) -> None:
    lost = deployment("lost", 5, "1", "1Gi")
    lost["spec"]["template"]["spec"]["nodeSelector"] = {"nowhere": "1"}
    cost = json.loads(run(tmp_path, lost))["cost"]
    assert cost["plannedNow"] is None and len(cost["unschedulableNow"]) == 5
    text = run(tmp_path, lost, flags=())
    assert "no place with the requests of now: shop/lost-" in text and " and 2 more; `dovetail plan` says why" in text


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--update-mode", "Off"), "--update-mode is of the objects that --apply vpa creates"),
        (("--observe", "-3m"), "--observe: -3m is less than nothing"),
        (("--prometheus", "prometheus:9090"), "--prometheus: prometheus:9090 is no address"),
    ],
)
def test_flags_without_an_effect_or_a_meaning_are_refused(tmp_path: Path, flags: tuple[str, ...], text: str) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump(deployment("web", 1, "1", "1Gi")), encoding="utf-8")
    with pytest.raises(UserError, match=text):
        CliRunner().invoke(rightsize, ["-f", str(file), *flags], catch_exceptions=False, standalone_mode=False)


def of_kind(kind: str, name: str) -> list[dict[str, Any]]:
    """A workload that requests ten times what it uses, its VPA and two days of its usage."""
    workload = deployment(name, 4, "2", "4Gi")
    template = workload["spec"]["template"]
    workload["kind"], workload["apiVersion"] = kind, "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    if kind in ("Job", "CronJob"):
        template["spec"]["restartPolicy"] = "Never"
        workload["spec"] = {"parallelism": 4, "template": template}
    if kind == "CronJob":
        workload["spec"] = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}
    target = vpa(name)
    target["spec"]["targetRef"] = {"apiVersion": workload["apiVersion"], "kind": kind, "name": name}
    return [workload, target, checkpoint(name, used(48, 200))]


def test_daemonsets_cost_on_every_node(tmp_path: Path) -> None:
    """Their pods come with the nodes: smaller requests leave more room on each."""
    objects = [deployment("web", 20, "1500m", "1Gi"), *of_kind("DaemonSet", "agent")]
    report = json.loads(run(tmp_path, *objects))
    agent = report["workloads"][0]
    assert (agent["kind"], agent["name"], agent["pods"]) == ("DaemonSet", "agent", 0)
    assert agent["containers"][0]["requests"] == {"cpu": "2", "memory": "4Gi"}
    assert agent["savingPerMonth"] > 0
    assert report["cost"]["plannedAfter"] < report["cost"]["plannedNow"]


def test_the_saving_of_the_only_proposal_is_the_saving_of_all(tmp_path: Path) -> None:
    """Both come from the same planner; two planners gave one workload a larger share than the total."""
    report = json.loads(run(tmp_path, *of_kind("StatefulSet", "db"), deployment("web", 7, "900m", "3Gi")))
    cost, (other, db) = report["cost"], report["workloads"]
    assert (other["name"], db["name"]) == ("web", "db")
    assert db["savingPerMonth"] == pytest.approx(cost["plannedNow"] - cost["plannedAfter"], abs=0.02) != 0


def test_a_job_is_not_patched_and_a_vpa_without_pods_is_said(tmp_path: Path) -> None:
    """The template of a Job cannot be changed: a patch of it would be refused."""
    objects = [*of_kind("Job", "batch"), *of_kind("CronJob", "nightly"), *of_kind("StatefulSet", "db")]
    by_name = {item["name"]: item for item in json.loads(run(tmp_path, *objects))["workloads"]}
    assert by_name["batch"]["containers"][0]["proposed"]
    assert by_name["nightly"]["unknown"] == "none of its pods is known, so neither are its requests"
    patches = list(yaml.safe_load_all(run(tmp_path, *objects, flags=("-o", "patch"))))
    assert [patch["kind"] for patch in patches] == ["StatefulSet"]


def test_a_cronjob_stands_behind_its_jobs() -> None:
    def of_job(name: str) -> str:
        owner = OwnerReference(kind="Job", name=name, controller=True)
        return str(workload_of(Pod(metadata=ObjectMeta(name="x", namespace="shop", owner_references=(owner,)))))

    assert of_job("nightly-29374620") == "shop/CronJob/nightly"
    assert of_job("import-2026") == "shop/Job/import-2026"
    (patch,) = as_patches(report(proposed(kind="CronJob")))
    assert patch["apiVersion"] == "batch/v1"
    (container,) = patch["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "126m"


def hpa(name: str, *metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{name}-hpa", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 9,
            "metrics": list(metrics),
        },
    }


def resource_metric(resource: str, **target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": resource, "target": target}}


PERCENT_OF_CPU = resource_metric("cpu", type="Utilization", averageUtilization=50)
PERCENT_OF_MEMORY = resource_metric("memory", type="Utilization", averageUtilization=50)
CORES = resource_metric("cpu", type="AverageValue", averageValue="500m")


@pytest.mark.parametrize(
    ("metrics", "held", "proposed"),
    [
        ([PERCENT_OF_CPU], ["cpu"], ["memory"]),
        ([], ["cpu"], ["memory"]),  # without metrics an HPA holds 80 % of cpu
        ([PERCENT_OF_CPU, PERCENT_OF_MEMORY], ["cpu", "memory"], []),
        ([CORES], [], ["cpu", "memory"]),
    ],
)
def test_requests_that_an_hpa_holds_a_percentage_of_are_left_as_they_are(
    tmp_path: Path, metrics: list[dict[str, Any]], held: list[str], proposed: list[str]
) -> None:
    """With other requests it would want another number of pods, so neither saving nor proposal would be true."""
    objects = (deployment("web", 8, "2", "4Gi"), vpa("web"), checkpoint("web", used(48, 100)), hpa("web", *metrics))
    report = json.loads(run(tmp_path, *objects))
    (item,) = report["workloads"]
    assert item.get("scaledBy", {}) == dict.fromkeys(held, "web-hpa")
    assert sorted(item["containers"][0]["proposed"]) == proposed
    assert (item["savingPerMonth"] is None) == (not proposed)
    text = run(tmp_path, *objects, flags=())
    for resource in held:
        assert f"shop/Deployment/web: {resource} requests, HorizontalPodAutoscaler web-hpa" in text
    assert ("because an HPA" in text) == bool(held)
    patches = [patch for patch in yaml.safe_load_all(run(tmp_path, *objects, flags=("-o", "patch"))) if patch]
    resources = [patch["spec"]["template"]["spec"]["containers"][0]["resources"] for patch in patches]
    assert [sorted(item["requests"]) for item in resources] == ([proposed] if proposed else [])


def test_more_dear_proposals_are_called_so(tmp_path: Path) -> None:
    objects = (deployment("small", 20, "100m", "100Mi"), vpa("small"), checkpoint("small", used(48, 2000)))
    cost = json.loads(run(tmp_path, *objects))["cost"]
    more = cost["plannedAfter"] - cost["plannedNow"]
    assert more > 0
    assert f"the proposals cost ${more:.2f}/month more" in run(tmp_path, *objects, flags=())


def test_too_little_history_is_said_and_changes_nothing(tmp_path: Path) -> None:
    objects = (deployment("young", 4, "2", "4Gi"), vpa("young"), checkpoint("young", used(5, 100)))
    (item,) = json.loads(run(tmp_path, *objects))["workloads"]
    assert item["unknown"] == "5.0 h of usage, 24 h are needed"
    (item,) = json.loads(run(tmp_path, *objects, flags=("-o", "json", "--min-history", "4h")))["workloads"]
    assert "unknown" not in item
    text = run(tmp_path, *objects, flags=())
    assert "shop/Deployment/young: 5.0 h of usage, 24 h are needed" in text
    assert text.endswith(
        "more usage: PodMetrics of several times, VPA checkpoints, or --prometheus URL; "
        "--min-history is content with less\n"
    )
    assert "no workload has a proposal, so nothing is saved" in text
    assert "planned with the proposed requests" not in text
    assert "more usage" not in run(tmp_path, *objects, flags=("--min-history", "4h"))


def test_a_reader_of_korean_gets_a_korean_table_and_english_data(tmp_path: Path) -> None:
    objects = (deployment("young", 4, "2", "4Gi"), vpa("young"), checkpoint("young", used(5, 100)))
    with in_language("ko"):
        header, row, *_ = run(tmp_path, *objects, flags=()).splitlines()
        shown = yaml.safe_load(run(tmp_path, *objects, flags=("-o", "yaml")))
    assert header.split()[:3] == ["워크로드", "파드", "컨테이너"]
    assert not any(word.isascii() and word.isalpha() for word in header.split() if word != "CPU")
    assert width_of(header.partition("컨테이너")[0]) == width_of(row.partition("main")[0])
    assert shown["workloads"][0]["unknown"] == "5.0 h of usage, 24 h are needed"


def test_usage_may_come_from_the_standard_input() -> None:
    objects = (deployment("large", 20, "2", "4Gi"), vpa("large"), checkpoint("large", used(48, 250)))
    command = ["-f", "-", "--region", "us-west-2", "-o", "json"]
    result = CliRunner().invoke(rightsize, command, input=yaml.safe_dump_all(objects), catch_exceptions=False)
    [workload] = json.loads(result.stdout)["workloads"]
    assert workload["containers"][0]["proposed"]["cpu"] == "296m"


def test_the_saving_of_all_proposals_is_one_line(tmp_path: Path) -> None:
    objects = (deployment("large", 20, "2", "4Gi"), vpa("large"), checkpoint("large", used(48, 250)))
    cost = json.loads(run(tmp_path, *objects))["cost"]
    share = 1 - cost["plannedAfter"] / cost["plannedNow"]
    assert f"the proposals save ${cost['plannedNow'] - cost['plannedAfter']:.2f}/month ({share:.0%})" in run(
        tmp_path, *objects, flags=()
    )


def test_recorded_pod_metrics_are_usage_too(tmp_path: Path) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop"},
        "spec": {"containers": [{"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}]},
    }
    items = [
        {
            "metadata": {"name": "web-0", "namespace": "shop"},
            "timestamp": (START + timedelta(hours=hour)).isoformat(),
            "containers": [{"name": "main", "usage": {"cpu": "100m", "memory": "50Mi"}}],
        }
        for hour in range(30)
    ]
    metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "items": items}
    (item,) = json.loads(run(tmp_path, pod, metrics))["workloads"]
    assert (item["kind"], item["samples"]) == ("Pod", 30)
    assert item["containers"][0]["proposed"] == {"cpu": "126m", "memory": "250Mi"}


def test_a_patch_names_the_workload_and_its_containers(tmp_path: Path) -> None:
    text = run(
        tmp_path,
        deployment("large", 2, "2", "4Gi"),
        vpa("large"),
        checkpoint("large", used(48, 250)),
        flags=("-o", "patch"),
    )
    (patch,) = yaml.safe_load_all(text)
    assert (patch["apiVersion"], patch["kind"], patch["metadata"]["name"]) == ("apps/v1", "Deployment", "large")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["resources"]["requests"]["cpu"]) == ("main", "296m")


def test_a_policy_of_the_vpa_bounds_the_proposal(tmp_path: Path) -> None:
    bounded = vpa("large")
    bounded["spec"]["resourcePolicy"] = {"containerPolicies": [{"containerName": "*", "minAllowed": {"cpu": "700m"}}]}
    objects = (deployment("large", 2, "2", "4Gi"), bounded, checkpoint("large", used(48, 250)))
    (item,) = json.loads(run(tmp_path, *objects))["workloads"]
    assert item["containers"][0]["proposed"]["cpu"] == "700m"


def test_a_deployment_stands_behind_its_replicaset() -> None:
    owner = OwnerReference(kind="ReplicaSet", name="web-5d4f", controller=True)
    hashed = Pod(
        metadata=ObjectMeta(
            name="web-5d4f-x", namespace="shop", labels={"pod-template-hash": "5d4f"}, owner_references=(owner,)
        )
    )
    assert str(workload_of(hashed)) == "shop/Deployment/web"
    plain = Pod(metadata=ObjectMeta(name="web-5d4f-x", namespace="shop", owner_references=(owner,)))
    assert str(workload_of(plain)) == "shop/ReplicaSet/web-5d4f"


def test_risk_is_the_share_of_usage_above_the_proposal() -> None:
    usage = Aggregation()
    for minute in range(100):
        usage.add_cpu(900 if minute % 10 == 0 else 100, START.timestamp() + minute)
    assert share_above(usage.cpu, 0.5) == pytest.approx(0.1, abs=0.01)
    assert share_above(usage.cpu, 2.0) == 0.0
    assert share_above(Aggregation().cpu, 1.0) == 0.0


def test_no_pods_no_advice() -> None:
    assert advise([], UsageEvidence(), {}, estimators=EstimatorSettings()) == []


# Applying


def proposed(*, known: bool = True, name: str = "web", kind: str = "Deployment") -> WorkloadAdvice:
    container = ContainerAdvice(
        name="main",
        requests={"cpu": "1", "memory": "1Gi"},
        limits={},
        used={"cpu": "100m", "memory": "100Mi"},
        proposed={"cpu": "126m", "memory": "250Mi"},
        proposed_limits={},
        above={},
    )
    return WorkloadAdvice(
        key=WorkloadKey("shop", kind, name),
        pods=2,
        containers=[container],
        history_s=86400.0,
        samples=1440,
        unknown="" if known else "usage is known for 1 hour",
    )


def report(*workloads: WorkloadAdvice) -> RightsizingReport:
    cost = FleetCost(nodes_now=None, planned_now=None, planned_after=None, lower_bound_after=None)
    return RightsizingReport(workloads=list(workloads), cost=cost)


def in_lab(body: Callable[[Lab], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Lab.embedded(1) as lab:
            await lab.kube.create(NAMESPACES, {"metadata": {"name": "shop"}})
            await lab.kube.create(DEPLOYMENTS, deployment("web", 2, "1", "1Gi"))
            for definition in definitions():
                await lab.kube.create(CRDS, definition)
            await body(lab)

    run_virtual(main())


def test_patches_set_the_proposed_requests_and_a_refusal_costs_only_its_own() -> None:
    async def body(lab: Lab) -> None:
        done = await write_patches(
            lab.kube, report(proposed(name="gone"), proposed(), proposed(known=False, name="new"))
        )
        assert [(item.object, item.state) for item in done] == [
            ("deployment/shop/gone", "refused"),
            ("deployment/shop/web", "changed"),
        ]
        assert 'deployments.apps "gone" not found' in done[0].why
        held = (await lab.kube.get(DEPLOYMENTS, "web", "shop"))["spec"]["template"]["spec"]["containers"][0]
        assert held["resources"]["requests"] == {"cpu": "126m", "memory": "250Mi"}
        assert held["image"] == "nginx"

    in_lab(body)


def test_vpas_are_created_for_workloads_that_have_none() -> None:
    async def body(lab: Lab) -> None:
        asked = report(proposed(), proposed(name="api"), proposed(known=False, name="new"), proposed(kind="Pod"))
        targeted = {WorkloadKey("shop", "Deployment", "api")}
        done = await write_vpas(lab.kube, asked, targeted, "Initial")
        assert [(item.object, item.state) for item in done] == [("verticalpodautoscaler/shop/web", "created")]
        spec = (await lab.kube.get(VPAS, "web", "shop"))["spec"]
        assert spec["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        assert spec["updatePolicy"] == {"updateMode": "Initial"}
        assert [item.state for item in await write_vpas(lab.kube, asked, targeted, "Initial")] == ["exists"]

    in_lab(body)


@pytest.mark.parametrize(
    ("metadata", "shown"), [({"generateName": "web-", "namespace": "shop"}, "web-"), ({}, ""), (None, ""), ("x", "")]
)
def test_an_hpa_without_a_name_is_refused_unless_the_server_names_it(tmp_path: Path, metadata: Any, shown: str) -> None:
    nameless = {**hpa("web"), "metadata": metadata}
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([deployment("web", 2, "2", "4Gi"), nameless]), encoding="utf-8")
    result = CliRunner().invoke(rightsize, ["-f", str(file), "--region", "us-west-2", "-o", "json"])
    if shown:
        assert json.loads(result.stdout)["workloads"][0]["scaledBy"] == {"cpu": shown}
    else:
        assert "HorizontalPodAutoscaler without a name; every object needs metadata.name" in result.output


def test_a_vpa_leaves_alone_what_an_hpa_holds() -> None:
    held = msgspec.structs.replace(proposed(), scaled_by={"cpu": "web"})
    both = msgspec.structs.replace(proposed(name="all"), scaled_by={"cpu": "all", "memory": "all"}, containers=[])
    (vpa_of_web,) = as_vpas(report(held, both), set(), "Initial")
    assert vpa_of_web["spec"]["resourcePolicy"] == {
        "containerPolicies": [{"containerName": "*", "controlledResources": ["memory"]}]
    }


def test_nothing_to_apply_says_whether_there_is_no_proposal_or_a_vpa_already() -> None:
    assert "no workload has a proposal" in nothing_to_apply(report(proposed(known=False)), "vpa")
    assert "no workload has a proposal" in nothing_to_apply(report(), "patch")
    assert "has a VerticalPodAutoscaler" in nothing_to_apply(report(proposed()), "vpa")


def test_apply_needs_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump(deployment("web", 2, "1", "1Gi")))
    result = CliRunner().invoke(rightsize, ["-f", str(file), "--region", "us-west-2", "--apply", "vpa"])
    assert result.exit_code == 2
    assert "--apply writes to a cluster" in result.output
