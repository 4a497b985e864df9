"""What is recorded of an object: nothing secret, and everything that planning reads."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model.pods import Pod
from dovetail.offline.recording import kept

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "1",
        "resourceVersion": "77",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "karpenter.sh/do-not-disrupt": "true",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "vault.example.com/token": "s3cret",
        },
    },
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "nginx",
                "args": ["--password=s3cret"],
                "env": [{"name": "TOKEN", "value": "s3cret"}],
                "resources": {"requests": {"cpu": "1"}},
                "ports": [{"containerPort": 80, "hostPort": 80}],
            }
        ],
        "nodeSelector": {"team": "a"},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
            {"name": "token", "secret": {"secretName": "s3cret"}},
            {"name": "scratch", "emptyDir": {"medium": "Memory"}},
        ],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "web", "ready": True, "restartCount": 0, "containerID": "containerd://1"}],
    },
}


def test_nothing_secret_is_recorded() -> None:
    assert b"s3cret" not in msgspec.json.encode(kept(POD))
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"role": "r", "userData": "echo s3cret"},
    }
    assert kept(node_class)["spec"] == {"role": "r"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    recorded = kept({**deployment, "spec": {"replicas": 3, "template": template}})
    assert b"s3cret" not in msgspec.json.encode(recorded)
    assert recorded["spec"]["template"]["metadata"] == {"labels": {"a": "b"}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}}
    recorded = kept({**cron, "spec": {"jobTemplate": {"spec": {"template": template}}}})
    assert b"s3cret" not in msgspec.json.encode(recorded)
    assert recorded["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx"


def test_what_planning_reads_of_a_pod_is_recorded() -> None:
    before, after = msgspec.convert(POD, Pod), msgspec.convert(kept(POD), Pod)
    assert before.spec.containers[0].resources == after.spec.containers[0].resources
    assert before.spec.containers[0].ports == after.spec.containers[0].ports
    assert before.spec.node_selector == after.spec.node_selector
    assert after.spec.volumes[0].persistent_volume_claim is not None
    assert set(after.metadata.annotations) == {
        "karpenter.sh/do-not-disrupt",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
    }
    assert after.status.phase == "Running" and after.status.container_statuses[0].ready


def test_a_heartbeat_changes_nothing() -> None:
    def node(beat: str, version: str) -> dict[str, Any]:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat, "lastTransitionTime": "then"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "a", "resourceVersion": version},
            "status": {"conditions": [condition], "allocatable": {"cpu": "2"}, "images": [{"names": ["x"]}]},
        }

    assert kept(node("12:00", "1")) == kept(node("12:05", "2"))
    assert kept(node("12:00", "1"))["status"]["allocatable"] == {"cpu": "2"}
