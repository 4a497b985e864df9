"""Does this pod fit this node: kube-scheduler's filters as pure functions over a snapshot.

`ClusterNodes` holds the snapshot, `Fit(pod, cluster)` works out once what one pod asks of every node, and
`Fit.check(node)` answers for one node with None or the rejection in Kubernetes' own words.
"""

from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.fit import Fit
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo, pod_info
from dovetail.model.fit.rejection import Rejection

__all__ = ["ClusterNodes", "Fit", "NodeInfo", "PodInfo", "Rejection", "pod_info"]
