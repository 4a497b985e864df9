"""`dovetail plan` by its contract: formats, exit status, what is read and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dovetail.cli.plan import plan
from dovetail.cli.plan_json import as_json, json_pieces, yaml_pieces
from dovetail.planner.optimise import improve
from dovetail.planner.plan import Cost, OfferingOption, Placement, Plan, PlannedNode

TYPE = {
    "name": "m5.large",
    "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
    "overhead": {"cpu": "70m", "memory": "921Mi"},
    "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"]},
    "offerings": [
        {"zone": f"ap-northeast-2{zone}", "capacityType": "on-demand", "price": 0.118, "available": True}
        for zone in "abc"
    ],
}


def _object(kind: str, name: str, spec: Any, version: str = "v1", **meta: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def _template(cpu: str, app: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, **spec}}


def _deployment(name: str, replicas: int, cpu: str, **spec: Any) -> dict[str, Any]:
    return _object(
        "Deployment",
        name,
        {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": _template(cpu, name, **spec)},
        "apps/v1",
    )


POOL = _object(
    "NodePool",
    "default",
    {
        "template": {
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }
        }
    },
    "karpenter.sh/v1",
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "catalog.json").write_text(json.dumps([TYPE]))

    def go(*objects: dict[str, Any], args: tuple[str, ...] = ("-o", "json"), deadline: str = "0") -> Result:
        file = tmp_path / "in.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        base = ["-f", str(file), "--catalog", str(tmp_path / "catalog.json"), "--deadline", deadline]
        return CliRunner().invoke(plan, [*base, *args])

    return go


def test_a_deployment_becomes_its_pods_and_nodes(run: Any) -> None:
    result = run(POOL, _deployment("web", 3, "900m"))
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert list(found["pods"]) == ["default/web-0", "default/web-1", "default/web-2"]
    assert len(found["machines"]) == 2
    assert found["cost"]["perHour"] == pytest.approx(0.236)
    planned = found["machines"][0]
    assert {
        "name",
        "nodePool",
        "instanceType",
        "zone",
        "capacityType",
        "price",
        "requests",
        "requirements",
        "offerings",
    } <= set(planned)
    assert found["took"]["tier"] == 1


def test_the_search_reports_bound_and_gap(run: Any) -> None:
    cost = json.loads(run(POOL, _deployment("web", 3, "900m"), deadline="0.2").stdout)["cost"]
    assert 0 < cost["lowerBound"] <= cost["perHour"]
    assert cost["boundOf"]


def test_few_pods_get_the_same_plan_however_slow_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "in.yaml"
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        }
    }
    file.write_text(
        yaml.safe_dump_all(
            [
                _deployment("web", 9, "1300m"),
                _deployment("jobs", 5, "3700m"),
                _deployment("db", 4, "700m", affinity=apart),
            ]
        )
    )

    def planned(*args: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(CliRunner().invoke(plan, ["-f", str(file), "-o", "json", *args]).stdout)
        del found["took"]
        return found

    calm = planned()
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(improve, "stopwatch", lambda: next(hours))
    assert planned() == calm
    assert calm["cost"]["perHour"] < planned("--deadline", "0")["cost"]["perHour"]


def test_many_pods_get_the_same_plan_on_a_slower_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "objects.yaml"
    sizes = [f"{170 + 130 * n}m" for n in range(12)]
    file.write_text(yaml.safe_dump_all([_deployment(f"w{n}", 55, size) for n, size in enumerate(sizes)]))
    plans = []
    for seconds in (1e-4, 0.03):
        looks = itertools.count(step=seconds)
        monkeypatch.setattr(improve, "stopwatch", lambda looks=looks: next(looks))
        found = json.loads(CliRunner().invoke(plan, ["-f", str(file), "-o", "json"]).stdout)
        plans.append({name: each for name, each in found.items() if name != "took"})
    assert plans[0] == plans[1]
    assert next(looks) > 2.5, "else the slower host would have been in time as well"


def test_a_pod_without_a_place_is_status_one_and_the_plan_is_printed(run: Any) -> None:
    result = run(POOL, _deployment("big", 1, "64"))
    assert result.exit_code == 1
    why = json.loads(result.stdout)["pods"]["default/big-0"]["unschedulable"]
    assert why["code"] == "NO_TYPE_FITS"
    assert why["nodePools"]["default"]["after"][-1]["left"] == 0
    assert (why["class"], why["remedy"]) == ("change", "ask for less, or allow larger types")
    assert why["nodePools"]["default"]["nearest"]["lacks"] == "cpu 62070m"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"metadata": {"name": "x"}}, "kind"),
        (_object("Pod", "x", {"containers": 3}), 'Pod "x": spec.containers'),
        (_deployment("x", "many", "1"), 'Deployment "x": spec.replicas'),
        (_deployment("x", 1, "1x"), 'spec.template.spec.containers[0].resources.requests.cpu: "1x" is not a quantity'),
        (_object("Pod", "x", {"overhead": {"cpu": "lots"}}), 'Pod "x": spec.overhead.cpu: "lots" is not a quantity'),
    ],
)
def test_wrong_input_is_status_two_with_object_and_field(run: Any, broken: dict[str, Any], said: str) -> None:
    result = run(broken)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr


def test_a_missing_file_and_no_file_are_wrong_input() -> None:
    assert CliRunner().invoke(plan, ["-f", "/nowhere.yaml"]).exit_code == 2
    assert CliRunner().invoke(plan, []).exit_code == 2


@pytest.mark.parametrize("deadline", ["nan", "inf", "-1"])
def test_a_deadline_that_is_no_time_is_wrong_input(run: Any, deadline: str) -> None:
    result = run(POOL, _deployment("web", 1, "1"), deadline=deadline)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "--deadline" in result.stderr


def test_unknown_kinds_are_noted_and_ignored(run: Any) -> None:
    result = run(POOL, _object("ConfigMap", "c", {}), _deployment("web", 1, "1"))
    assert result.exit_code == 0
    assert "1 ConfigMap ignored" in result.stderr


def test_a_workload_whose_pods_are_there_is_not_counted_twice(run: Any) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d", "uid": "u", "controller": True}]
    pod = _object("Pod", "web-5d-x", _template("1", "web")["spec"], namespace="default", ownerReferences=owner)
    found = json.loads(run(POOL, _deployment("web", 3, "1"), pod).stdout)
    assert list(found["pods"]) == ["default/web-5d-x"]


def test_gated_and_finished_pods_are_left_alone(run: Any) -> None:
    gated = _object("Pod", "gated", {**_template("1", "a")["spec"], "schedulingGates": [{"name": "x"}]})
    done = {**_object("Pod", "done", _template("1", "a")["spec"]), "status": {"phase": "Succeeded"}}
    assert json.loads(run(POOL, gated, done).stdout)["pods"] == {}


def test_pods_on_the_hosts_network_take_their_ports_from_it(run: Any) -> None:
    """Manifests leave out what the API server adds: on the host's network a container's port is the host's."""
    template = _template("100m", "web", hostNetwork=True)
    template["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    web = _object("Deployment", "web", {"replicas": 3, "template": template}, "apps/v1")
    assert len(json.loads(run(POOL, web).stdout)["machines"]) == 3


def test_statefulsets_bring_their_claims(run: Any) -> None:
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "gp3"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "values": ["ap-northeast-2b"]}]}
        ],
    }
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "gp3", "accessModes": ["ReadWriteOnce"]}}
    sts = _object(
        "StatefulSet",
        "db",
        {"replicas": 2, "template": _template("1", "db"), "volumeClaimTemplates": [claim]},
        "apps/v1",
    )
    found = json.loads(run(POOL, storage, sts).stdout)
    assert {planned["zone"] for planned in found["machines"]} == {"ap-northeast-2b"}


def test_pods_that_leave_a_going_node_have_their_successors_elsewhere(run: Any) -> None:
    """A ReplicaSet makes another pod at once, a StatefulSet when the old one is gone."""

    def owned(name: str, kind: str, **meta: Any) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "x", "controller": True}
        return _object("Pod", name, _template("100m", "a")["spec"], ownerReferences=[owner], **meta)

    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    held = [owned("stays", "ReplicaSet"), owned("leaves", "ReplicaSet", **gone), owned("db-0", "StatefulSet", **gone)]
    node, *pods = _running("node-1", "2", held)
    node["metadata"] |= gone
    assert set(json.loads(run(POOL, node, *pods).stdout)["pods"]) == {"default/stays", "default/db-0"}


def _running(name: str, cpu: str, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    labels = {
        "karpenter.sh/nodepool": "default",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "ap-northeast-2a",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/initialized": "true",
        "kubernetes.io/arch": "amd64",
    }
    room = {"cpu": cpu, "memory": "7Gi", "pods": "29"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"capacity": room, "allocatable": room},
    }
    for pod in pods:
        pod["spec"]["nodeName"] = name
    return [node, *pods]


def test_consolidation_gives_back_what_fits_elsewhere(run: Any) -> None:
    web = [_object("Pod", f"web-{i}", _template("400m", "web")["spec"], namespace="default") for i in range(2)]
    objects = [*_running("n1", "1900m", web[:1]), *_running("n2", "1900m", web[1:])]
    result = run(POOL, *objects, args=("-o", "json", "--consolidate"))
    found = json.loads(result.stdout)
    assert len(found["remove"]) == 1
    assert found["evictions"] == 1
    assert found["cost"]["before"] == pytest.approx(0.236)
    assert found["cost"]["after"] == pytest.approx(0.118)
    (move,) = found["moves"].values()
    assert move["from"] in found["remove"]
    assert move["node"] not in found["remove"]


def test_text_and_yaml_say_the_same(run: Any) -> None:
    text = run(POOL, _deployment("web", 3, "900m"), args=()).stdout
    assert "m5.large" in text
    assert "a month" in text
    found = yaml.safe_load(run(POOL, _deployment("web", 3, "900m"), args=("-o", "yaml")).stdout)
    assert found["cost"]["perHour"] == pytest.approx(0.236)


def _many(count: int) -> Plan:
    """Nodes that may become any of many types."""
    offers = tuple(
        OfferingOption(instance_type=f"t{n}", zone="z", capacity_type="spot", price=0.01 + n) for n in range(50)
    )
    planned_nodes = tuple(
        PlannedNode(
            name=f"m-{n}", pool="p", offerings=offers, requirements=(), requests={"cpu": 5}, pods=(f"default/a-{n}",)
        )
        for n in range(count)
    )
    places = {f"default/a-{n}": Placement(new_node=f"m-{n}") for n in range(count)}
    return Plan(placements=places, nodes=planned_nodes, cost=Cost(per_hour=0.39052, lower_bound=0.0007999))


@pytest.mark.parametrize("count", [0, 1, 30])
def test_programs_are_reported_a_node_at_a_time(count: int) -> None:
    """What thousands of nodes may become would fill the memory."""
    made = _many(count)
    expected = list(json_pieces(made, consolidating=False))
    assert json.loads("".join(expected)) == as_json(made, consolidating=False)
    assert expected and all(piece.count("instanceType") <= 51 for piece in expected)
    in_yaml = list(yaml_pieces(made, consolidating=False))
    assert yaml.safe_load("".join(in_yaml)) == as_json(made, consolidating=False)
    assert in_yaml and all(piece.count("instanceType") <= 51 for piece in in_yaml)


def test_the_gap_is_that_of_the_numbers_beside_it() -> None:
    cost = as_json(_many(0), consolidating=False)["cost"]
    assert cost["gap"] == pytest.approx(cost["perHour"] / cost["lowerBound"] - 1, rel=1e-6)


def test_people_read_what_nodes_are_for_and_why_a_pod_has_none(run: Any) -> None:
    lone = _object("Pod", "lone", _template("100m", "lone")["spec"])
    text = run(POOL, _deployment("web", 2, "700m"), lone, _deployment("big", 1, "64"), args=()).stdout
    heads, row = text.splitlines()[:2]
    assert row[heads.index("FOR") :] == "2 web, lone"
    assert "$0.1180 an hour, $86.14 a month, 1 node\n" in text
    assert (
        """
no node for 1 pod: default/big-0
  NO_TYPE_FITS (change), NodePool default: ask for less, or allow larger types
  NodePool default: 3 offerings, none left by cpu 64 (at most 1930m)
    nearest: m5.large in ap-northeast-2a, $0.1180/h, lacks cpu 62070m
"""
        in text
    )


def test_verbose_says_what_else_would_do_and_what_cheaper_ones_lack(run: Any, tmp_path: Path) -> None:
    small = {
        **TYPE,
        "name": "m5.tiny",
        "capacity": {"cpu": "1", "memory": "2Gi", "pods": "9"},
        "offerings": [{**TYPE["offerings"][0], "price": 0.02}],  # type: ignore[index]
    }
    (tmp_path / "catalog.json").write_text(json.dumps([TYPE, small]))
    text = run(POOL, _deployment("web", 1, "1500m"), args=("-v",)).stdout
    best = "  $0.1180  m5.large in ap-northeast-2a and 2 more zones, on-demand\n"
    assert f"m-1: 3 offerings would do, the best\n{best}" in text
    assert "  $0.0200  m5.tiny in ap-northeast-2a, on-demand: too small: cpu 1500m > 930m" in text


def test_a_namespace_is_there_as_soon_as_a_pod_lives_in_it(run: Any) -> None:
    """Manifests seldom have the namespaces themselves; each is labelled with its name in any case."""
    db = _object("Pod", "db", _template("100m", "db")["spec"], namespace="data", labels={"app": "db"})
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "topology.kubernetes.io/zone",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "data"}},
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    result = run(POOL, *_running("n1", "1900m", [db]), _deployment("web", 3, "1500m", affinity=near))
    assert result.exit_code == 0
    assert {planned["zone"] for planned in json.loads(result.stdout)["machines"]} == {"ap-northeast-2a"}


def test_without_a_pool_or_a_catalogue_the_region_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(_deployment("web", 2, "1")))
    result = CliRunner().invoke(plan, ["-f", str(file), "--region", "ap-northeast-2", "--deadline", "0"])
    assert result.exit_code == 0
    assert "ap-northeast-2" in result.stdout
