"""Our answers to a case, in the form the real scheduler's were recorded."""

from __future__ import annotations

from typing import Any

from dovetail.lab.scheduler.messages import failure
from dovetail.lab.scheduler.preemption import preempt
from dovetail.lab.scheduler.schedule_one import schedule
from dovetail.lab.scheduler.scoring.scores import scores
from dovetail.model.fit import ClusterNodes, Fit, PodInfo, pod_info
from dovetail.model.fit.owners import Owners
from dovetail.model.fit.storage import Storage
from dovetail.model.meta import view
from dovetail.model.nodes import Namespace, Node
from dovetail.model.pods import Pod
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from dovetail.model.workloads import PodDisruptionBudget, ReplicaSet, Service

Json = dict[str, Any]


def cluster_of(case: Json) -> ClusterNodes:
    def read(key: str, kind: Any) -> list[Any]:
        return [view(each, kind) for each in case.get(key, ())]

    storage = Storage(
        read("claims", PersistentVolumeClaim),
        read("volumes", PersistentVolume),
        read("classes", StorageClass),
        read("csiNodes", CSINode),
        read("attachments", VolumeAttachment),
    )
    owners = Owners(read("services", Service), read("replicaSets", ReplicaSet))
    return ClusterNodes.of(read("nodes", Node), read("pods", Pod), read("namespaces", Namespace), storage, owners)


def pending_of(case: Json) -> PodInfo:
    return pod_info(view(case["pending"], Pod))


def answer(case: Json) -> Json:
    """Either the scores of the nodes that will do and the rejections of the others, or the failure in words."""
    cluster, pod = cluster_of(case), pending_of(case)
    decision = schedule(pod, cluster)
    if decision.node is not None:
        fit = Fit(pod, cluster)
        named = [info for info in cluster.nodes.values() if fit.only is None or info.name in fit.only]
        feasible = [info for info in named if fit.check(info) is None]
        found = dict(zip((info.name for info in feasible), scores(pod, cluster, feasible), strict=True))
        assert found[decision.node] == max(found.values())
        rejections = {name: sorted(each.reasons) for name, each in decision.rejections.items()}
        return {"scores": found, "rejections": rejections}
    if decision.refused is not None:
        return {"message": failure(decision, "")}
    outcome = preempt(pod, cluster, decision, [view(each, PodDisruptionBudget) for each in case["budgets"]], {})
    if outcome.victims is not None:
        return {"message": failure(decision, None), "nominated": outcome.victims.node}
    failed: Json = {"message": failure(decision, outcome.words)}
    return failed | ({"nominated": ""} if outcome.words.startswith("0/") else {})
