"""Wrong manifests: the object, the field, the value, and no trace of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import UserError
from dovetail.model.pods import Pod
from dovetail.offline.objects import Objects, read
from dovetail.offline.snapshot import snapshot
from dovetail.offline.warnings import MOST_DOUBTS, notes

SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
PERHAPS = {**SPREAD, "whenUnsatisfiable": "Perhaps"}
POOL = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}}


def _pool(version: str, *requirements: dict[str, Any]) -> dict[str, Any]:
    return {**POOL, "apiVersion": version, "spec": {"template": {"spec": {"requirements": list(requirements)}}}}


def _pods(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def _on(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _spread(**fields: Any) -> dict[str, Any]:
    return _pods("Pod", {"topologySpreadConstraints": [{**SPREAD, **fields}]})


def _container(**fields: Any) -> dict[str, Any]:
    return _pods("Pod", {"containers": [{"name": "c", **fields}]})


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        (7, "7 is not an object"),
        ({"kind": "List", "items": ["a"]}, '"a" is not an object'),
        ({"kind": "PodList", "items": [None]}, "null is not an object"),
        ({"kind": "List", "items": "pods.yaml"}, 'List: items: "pods.yaml" is not a list'),
        (_pods("Deployment", {"replicas": "many"}), 'Deployment "x": spec.replicas: "many" is not a whole number'),
        (_pods("Deployment", {"replicas": -3}), 'Deployment "x": spec.replicas: -3 is below zero'),
        (_pods("Pod", {"nodeSelector": {"disk": "ssd", "zone": 7}}), 'Pod "x": spec.nodeSelector.zone: 7 is not text'),
        (_pods("Pod", {"containers": [3]}), 'Pod "x": spec.containers[0]: 3 is not a mapping'),
        ({"kind": "Pod", "metadata": [1, 2]}, "metadata: [1, 2] is not a mapping"),
        (
            _pods("Pod", {"containers": [{"name": "a", "resources": {"requests": {"cpu": "-1"}}}]}),
            "spec.containers[0].resources.requests.cpu: -1 is below zero",
        ),
        (
            _pods("Pod", {"tolerations": [{"key": "a", "operator": "Maybe"}]}),
            'Pod "x": spec.tolerations[0].operator: Unsupported value: "Maybe": supported values: "Equal", "Exists"',
        ),
        (
            _pods("Deployment", {"template": {"spec": {"topologySpreadConstraints": [PERHAPS]}}}),
            'spec.template.spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Perhaps"',
        ),
        (_spread(maxSkew=0), 'Pod "x": spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater'),
        (_spread(maxSkew=-1), "[0].maxSkew: Invalid value: -1: must be greater than zero"),
        (_spread(minDomains=0), "[0].minDomains: Invalid value: 0: must be greater than zero"),
        (_spread(topologyKey=""), "[0].topologyKey: Required value: can not be empty"),
        (
            _pods("Pod", {"affinity": _on({"key": "a", "operator": "Nope"})}),
            '.matchExpressions[0].operator: Invalid value: "Nope": not a valid selector operator',
        ),
        (_pool("karpenter.sh/v7"), 'NodePool "p": apiVersion: "karpenter.sh/v7" has no NodePool'),
        (
            _pool("karpenter.sh/v1", {"key": "a", "operator": "Foo", "values": ["b"]}),
            'NodePool "p": spec.template.spec.requirements[0].operator: Unsupported value: "Foo"',
        ),
    ],
)
def test_what_is_wrong_is_reported_with_object_field_and_value(source: Any, reported: str) -> None:
    with pytest.raises(UserError) as caught:
        Objects().add(source)
    assert reported in caught.value.message


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("kind: Pod\nmetadata: &m {name: a, labels: *m}\n", "aliases make it endless"),
        ("kind: List\nitems: &i [{kind: List, items: *i}]\n", "aliases make it endless"),
        (
            "\n".join(["kind: Pod", "a0: &a0 [x, x]", *(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]" for n in range(40))]),
            "aliases make it endless",
        ),
        ('{"kind": "Pod", "spec": ' + 50_000 * "[" + 50_000 * "]" + "}", "nested too deeply"),
    ],
)
def test_what_has_no_end_is_refused(tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "endless.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"endless\.yaml: {reported}"):
        read([str(tmp_path)])


def test_operators_of_pools_are_understood_of_pods_too() -> None:
    objects = Objects()
    objects.add(_pods("Pod", {"affinity": _on({"key": "a", "operator": "Gte", "values": ["3"]})}))
    assert len(objects.of(Pod)) == 1


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        (_spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"), "can only use minDomains if"),
        (_container(resources={"requests": {"cpu": 2}, "limits": {"cpu": "1"}}), "or equal to cpu limit of 1"),
        (_container(resources={"requests": {"nvidia.com/gpu": 1}}), "Limit must be set for non overcommitable"),
        (_container(ports=[{"containerPort": 80, "hostPort": 70000}]), "hostPort: Invalid value: 70000"),
        (_pods("Pod", {"nodeSelector": {"a b": "c"}}), "spec.nodeSelector: Invalid value"),
        (_pods("Pod", {"affinity": _on({"key": "a", "operator": "In"})}), "values: Required value"),
    ],
)
def test_what_the_server_would_refuse_of_pods_is_planned_for_and_noted_once(
    source: dict[str, Any], reported: str
) -> None:
    """It is clear what is meant; but applying the manifest will be refused."""
    objects = Objects()
    for name in ("a", "b", "c"):
        objects.add({**source, "metadata": {"name": name}})
    world = snapshot(objects, (), any_type=True)
    (note,) = notes(objects, "", world, consolidating=False)
    assert len(world.pending) == 3
    assert note.startswith('Pod "a" and 2 more: spec.')
    assert reported in note


def test_many_things_that_are_wrong_with_pods_do_not_fill_the_screen() -> None:
    objects = Objects()
    for at in range(30):
        objects.add({**_pods("Pod", {"nodeSelector": {f"a b {at}": "c"}}), "metadata": {"name": f"p{at}"}})
    assert len(list(notes(objects, "", snapshot(objects, (), any_type=True), consolidating=False))) == MOST_DOUBTS + 1


@pytest.mark.parametrize(
    "spec",
    [
        _container(
            resources={"limits": {"cpu": 2, "nvidia.com/gpu": "1"}}, ports=[{"containerPort": 80, "hostPort": 80}]
        ),
        _container(resources={"requests": {"cpu": None, "memory": "1Gi"}}, ports=None),
        _pods("Pod", {"topologySpreadConstraints": [SPREAD], "tolerations": [{"operator": "Exists"}]}),
    ],
)
def test_what_people_write_is_not_doubted(spec: dict[str, Any]) -> None:
    """Not a limit without a request either, nor an amount that a template leaves empty."""
    objects = Objects()
    objects.add(spec)
    assert not objects.doubtful


def test_what_a_server_has_stored_is_not_doubted() -> None:
    objects = Objects()
    objects.add({**_pods("Pod", {"nodeSelector": {"a b": "c"}}), "metadata": {"name": "x", "uid": "u"}})
    assert not objects.doubtful


def test_aliases_that_end_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod\nmetadata: {name: a, labels: &l {app: a}, annotations: *l}\n")
    (pod,) = read([str(tmp_path)]).of(Pod)
    assert pod.metadata.labels == pod.metadata.annotations == {"app": "a"}


def test_more_pods_than_any_cluster_runs_are_refused() -> None:
    objects = Objects()
    objects.add(_pods("Deployment", {"replicas": 2_000_000_000}))
    with pytest.raises(UserError, match='Deployment "x": with its 2000000000 pods'):
        snapshot(objects, (), any_type=True)


@pytest.mark.parametrize(("deployment", "count"), [("web", 2), ("other", 3)])
def test_a_replicaset_makes_its_pods_unless_its_deployment_does(deployment: str, count: int) -> None:
    """A query of a cluster for ReplicaSets alone has no Deployments in the input."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    made = _pods("ReplicaSet", {"replicas": 1})
    objects = Objects()
    objects.add({**made, "metadata": {"name": "web-5d", "ownerReferences": [owner]}})
    objects.add({**_pods("Deployment", {"replicas": 2}), "metadata": {"name": deployment}})
    assert len(snapshot(objects, (), any_type=True).pending) == count


def test_a_slip_in_yaml_is_reported_with_file_and_place(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: Pod\n---\nkind: [\n")
    with pytest.raises(UserError, match=r"bad\.yaml: not YAML: line 4, column 1: [^\n]+$"):
        read([str(tmp_path)])


def test_a_pod_with_a_limit_and_no_request_asks_for_the_limit() -> None:
    """So does the API server complete it; a node without the device would be no place for it."""
    objects = Objects()
    container = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "2"}, "requests": {"cpu": "1"}}}
    objects.add(_pods("Pod", {"containers": [container]}))
    (pod,) = snapshot(objects, (), any_type=True).pending
    assert pod.spec.containers[0].resources.requests == {"nvidia.com/gpu": 1, "cpu": "1"}


def test_items_of_a_typed_list_need_no_kind_of_their_own() -> None:
    objects = Objects()
    objects.add({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]})
    assert [pod.metadata.name for pod in objects.of(Pod)] == ["a"]


def _pod(name: str, cpu: str) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


def test_of_what_is_there_twice_the_last_counts(tmp_path: Path) -> None:
    """As when manifests are applied one after the other: a pod has one name and one place."""
    (tmp_path / "a.yaml").write_text(json.dumps(_pod("a", "1")))
    (tmp_path / "b.yaml").write_text(json.dumps(_pod("a", "2")))
    objects = read([str(tmp_path)])
    (pod,) = objects.of(Pod)
    assert pod.spec.containers[0].resources.requests == {"cpu": "2"}
    assert objects.twice == ['Pod "a"']


def test_json_documents_may_follow_each_other(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text(f"{json.dumps(_pod('a', '1'), indent=1)}\n{json.dumps(_pod('b', '1'))}\n")
    assert [pod.metadata.name for pod in read([str(file)]).of(Pod)] == ["a", "b"]


def test_a_name_that_the_server_would_make_up_is_made_up() -> None:
    objects = Objects()
    for _ in range(2):
        objects.add({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "pi-"}, "spec": {}})
    assert [pod.metadata.name for pod in objects.of(Pod)] == ["pi-0", "pi-1"]


def test_workloads_of_one_name_do_not_share_pods() -> None:
    objects = Objects()
    template = {"spec": _pod("", "1")["spec"]}
    for kind in ("Deployment", "StatefulSet"):
        objects.add(_pods(kind, {"replicas": 2, "template": template}))
    objects.add(_pod("x-2", "1"))
    waiting = [pod.metadata.key for pod in snapshot(objects, (), any_type=True).pending]
    assert sorted(waiting) == [f"default/x-{at}" for at in range(5)]


def test_a_class_of_priority_is_every_clusters_or_missed() -> None:
    objects = Objects()
    for name in ("system-cluster-critical", "urgent"):
        objects.add({**_pods("Pod", {"priorityClassName": name}), "metadata": {"name": name}})
    world = snapshot(objects, (), any_type=True)
    assert world.priorities["system-cluster-critical"] > 1_000_000_000
    assert list(notes(objects, "", world, consolidating=False)) == [
        "PriorityClass urgent is not in the input: its pods are no more important than others"
    ]
