"""Explanations of pods, nodes, NodePools and what they depend on, from the objects and the decision history.

Pure: the cluster state, the decisions and the events come in, an `Answer` goes out.
"""

from dovetail.controllers.explain.answer import (
    Answer,
    Event,
    Unknown,
    events_of,
    no_autoscaler,
    since,
    without_autoscaler,
)
from dovetail.controllers.explain.disruption_budgets import pdb
from dovetail.controllers.explain.namespaces import namespace
from dovetail.controllers.explain.node_groups import (
    STATUS_CONFIG_MAP,
    explanations_of,
    group_answer,
    group_node,
    nodegroup,
    scaling_group,
)
from dovetail.controllers.explain.nodeclasses import nodeclass
from dovetail.controllers.explain.nodepools import nodepool
from dovetail.controllers.explain.nodes import claim, node
from dovetail.controllers.explain.past import past
from dovetail.controllers.explain.pod_autoscalers import hpa, vpa
from dovetail.controllers.explain.pods import pod, refused
from dovetail.controllers.explain.workloads import pods_of, workload

__all__ = [
    "STATUS_CONFIG_MAP",
    "Answer",
    "Event",
    "Unknown",
    "claim",
    "events_of",
    "explanations_of",
    "group_answer",
    "group_node",
    "hpa",
    "namespace",
    "no_autoscaler",
    "node",
    "nodeclass",
    "nodegroup",
    "nodepool",
    "past",
    "pdb",
    "pod",
    "pods_of",
    "refused",
    "scaling_group",
    "since",
    "vpa",
    "without_autoscaler",
    "workload",
]
