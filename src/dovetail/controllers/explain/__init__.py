"""Explanations of a pod, a node or a NodePool, from the objects and the decision history.

Pure: the cluster state and the decisions come in, an `Answer` goes out.
"""

from dovetail.controllers.explain.answer import Answer, Unknown, no_autoscaler, since
from dovetail.controllers.explain.nodepools import nodepool
from dovetail.controllers.explain.nodes import claim, node
from dovetail.controllers.explain.pods import pod

__all__ = ["Answer", "Unknown", "claim", "no_autoscaler", "node", "nodepool", "pod", "since"]
