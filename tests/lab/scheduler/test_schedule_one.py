"""What nodes answered to pods of a shape is remembered only of nodes that are there."""

from __future__ import annotations

from dovetail.lab.scheduler.schedule_one import FilterRejections, schedule
from dovetail.model.fit import ClusterNodes, pod_info
from dovetail.model.fit.owners import Owners
from dovetail.model.fit.storage import Storage
from dovetail.model.meta import view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
}


def cluster(*names: str) -> ClusterNodes:
    size = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    nodes = [view({"metadata": {"name": name}, "status": {"allocatable": size}}, Node) for name in names]
    return ClusterNodes.of(nodes, [], [], Storage([], [], [], [], []), Owners([], []))


def test_answers_of_nodes_that_are_gone_are_forgotten() -> None:
    memory, pod = FilterRejections(), pod_info(view(POD, Pod))
    for day in range(20):
        decision = schedule(pod, cluster("stays", f"node-of-day-{day}"), memory=memory)
        assert decision.feasible == 2
    assert len(memory._answers) <= 6
