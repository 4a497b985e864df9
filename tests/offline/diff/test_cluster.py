"""A cluster from lists or files is completed: owners, configuration, namespaces, kinds of today."""

from __future__ import annotations

from typing import Any

from dovetail.offline.diff.cluster import complete

Json = dict[str, Any]


def pod(name: str, owner: Json | None = None, **spec: Any) -> Json:
    metadata: Json = {"name": name, "namespace": "shop", "uid": f"u-{name}", "labels": {"app": "web", "pod": name}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    containers = [{"name": "web", "image": "web"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "a", "containers": containers, **spec},
    }


def owner(uid: str, kind: str = "ReplicaSet") -> Json:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "web-1", "uid": uid, "controller": True}


def test_pods_of_a_workload_that_is_not_there_get_a_replica_set_of_their_number() -> None:
    cluster = complete([pod("a", owner("u-rollout", "Rollout")), pod("b", owner("u-rollout", "Rollout"))])
    (made,) = cluster.of("ReplicaSet")
    assert made["metadata"]["uid"] == "u-rollout"
    assert made["spec"]["replicas"] == 2
    assert made["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    assert "nodeName" not in made["spec"]["template"]["spec"]
    assert [item["metadata"]["ownerReferences"][0]["kind"] for item in cluster.of("Pod")] == ["ReplicaSet"] * 2
    assert any("not in the input" in note for note in cluster.notes)


def test_owners_that_are_not_there_are_dropped_so_that_nothing_is_collected_as_garbage() -> None:
    set_of = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u-rs"},
    }
    set_of["metadata"]["ownerReferences"] = [owner("u-gone", "Rollout")]  # type: ignore[index]
    cluster = complete([set_of, pod("a", owner("u-rs"))])
    assert "ownerReferences" not in cluster.of("ReplicaSet")[0]["metadata"]
    assert cluster.of("Pod")[0]["metadata"]["ownerReferences"][0]["uid"] == "u-rs"


def test_configuration_that_pods_name_is_there_with_its_keys() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}}]
    volumes = [{"name": "files", "configMap": {"name": "files"}}]
    item = pod("a", volumes=volumes)
    item["spec"]["containers"][0]["env"] = env
    cluster = complete([item])
    (secret,), (files,) = cluster.of("Secret"), cluster.of("ConfigMap")
    assert (secret["metadata"]["name"], list(secret["data"])) == ("token", ["value"])
    assert files["metadata"]["namespace"] == "shop"
    assert [item["metadata"]["name"] for item in cluster.of("Namespace")] == ["shop"]


def test_manifests_are_created_and_stored_objects_keep_their_identity() -> None:
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}
    cluster = complete([manifest, pod("a"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}])
    assert [item["kind"] for item in cluster.manifests] == ["Deployment"]
    assert {item["kind"] for item in cluster.stored} == {"Pod", "Node", "Namespace"}
    assert all(item["metadata"]["uid"] for item in cluster.stored)
    assert "uid" not in manifest["metadata"]


def test_objects_of_older_versions_are_read_as_todays() -> None:
    provisioner = {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": "old"},
        "spec": {},
    }
    autoscaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    cluster = complete([{"kind": "List", "items": [provisioner, autoscaler]}])
    assert cluster.get("NodePool", "", "old") is not None
    assert any("1 pod autoscaler is left out" in note for note in cluster.notes)
