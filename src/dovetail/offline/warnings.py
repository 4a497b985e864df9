"""What `dovetail plan` says about its input beside the plan: what was left out, and what was taken for granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dovetail.language import message, plural
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolumeClaim
from dovetail.offline.objects import Objects
from dovetail.offline.snapshot import why_idle
from dovetail.planner.problem.pod_spec import claim_names
from dovetail.planner.snapshot import Snapshot

#: So many things that are wrong with pods are listed one by one.
MOST_DOUBTS = 10


def notes(objects: Objects, region: str, snapshot: Snapshot, consolidating: bool) -> Iterator[str]:
    """What a reader of the plan should know about the input."""
    pools = objects.of(NodePool)
    if region and not pools and snapshot.pending:
        yield message(
            "no NodePool in the input: on-demand c, m and r nodes for linux/amd64 in {region} are taken", region=region
        )
    for pool in pools:
        name = pool.spec.template.spec.node_class_ref.name
        if why := why_idle(pool, objects):
            yield message("NodePool {pool} is left out: {why}", pool=pool.name, why=why)
        elif objects.node_classes and name not in objects.node_classes:
            yield message(
                "NodePool {pool}: EC2NodeClass {name} is not in the input; AL2023 nodes are taken",
                pool=pool.name,
                name=name,
            )
    gated = sum(1 for pod in objects.of(Pod) if pod.spec.scheduling_gates and not pod.spec.node_name)
    if gated:
        yield plural(
            "{n} pod left out: held back by scheduling gates",
            "{n} pods left out: held back by scheduling gates",
            n=gated,
        )
    if objects.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(objects.ignored.items()))
        yield message("{kinds} ignored", kinds=kinds)
    for problem in objects.refused:
        yield message("{problem}; the API server would refuse it, dovetail lint says more", problem=problem)
    yield from _pod_warnings(objects)
    for name in objects.twice:
        yield message("{name} is in the input more than once; the last counts", name=name)
    if not snapshot.storage_classes and any(not claim.spec.volume_name for claim in snapshot.claims.values()):
        yield message("volumes are claimed, and the input has no StorageClass: add those of the cluster")
    yield from _crowded(snapshot)
    named = {pod.spec.priority_class_name for pod in snapshot.pending if pod.spec.priority is None}
    for name in sorted(named - snapshot.priorities.keys()):
        yield message("PriorityClass {name} is not in the input: its pods are no more important than others", name=name)
    if consolidating and not snapshot.nodes:
        yield message("no Node is in the input that could be terminated")
    if not consolidating and not snapshot.pending and not gated:
        yield message("no pod waits, and nothing in the input would make one")


def _pod_warnings(objects: Objects) -> Iterator[str]:
    """What the API server would refuse of pods, each thing once."""
    for problem, names in list(objects.doubtful.items())[:MOST_DOUBTS]:
        others = message(" and {count} more", count=len(names) - 1) if len(names) > 1 else ""
        yield message(
            "{names}{others}: {problem}; the API server would refuse it", names=names[0], others=others, problem=problem
        )
    if len(objects.doubtful) > MOST_DOUBTS:
        yield message("{count} more things that the API server would refuse", count=len(objects.doubtful) - MOST_DOUBTS)


def _crowded(snapshot: Snapshot) -> Iterator[str]:
    """Volumes that one node can attach, and several pods are to use: kube-scheduler does not mind, the pods do."""
    using = (pod for pod in snapshot.pending if pod.spec.volumes)
    users = Counter(key for pod in using for key in {key for key, _ in claim_names(pod)})
    shared = [(key, count) for key, count in users.items() if count > 1 and _alone(snapshot.claims.get(key))]
    for key, count in shared[:MOST_DOUBTS]:
        yield (
            message(
                "PersistentVolumeClaim {key} is for one node at a time (ReadWriteOnce), and {count} pods "
                "use it: those on another node may not start",
                key=key,
                count=count,
            )
        )
    if len(shared) > MOST_DOUBTS:
        yield message("{count} more claims of that kind", count=len(shared) - MOST_DOUBTS)


def _alone(claim: PersistentVolumeClaim | None) -> bool:
    return claim is not None and claim.spec.access_modes == ("ReadWriteOnce",)
