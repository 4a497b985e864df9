"""DaemonSet pods of a new node come before the pods that were planned for it.

Agents of the node (network, DNS, credentials, logs) must run before the pods that need them. The DaemonSet controller
creates no pod for a node whose taints its template does not tolerate, but tolerates
`node.kubernetes.io/unschedulable` by itself. So a node that expects such pods is cordoned while it is being filled,
and carries our taint with an effect that keeps no pod away; a node that expects none carries the taint alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.model import wellknown
from dovetail.model.fit.podinfo import node_matches, shape_of
from dovetail.model.nodes import Node, Taint
from dovetail.model.pods import Pod
from dovetail.model.taints import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE, ephemeral, untolerated
from dovetail.model.workloads import DaemonSet

#: Planned pods wait at most so many seconds for the DaemonSet pods of their node.
MAX_WAIT_FOR_DAEMON_PODS_S = 20.0


def expected(node: Node, daemonsets: Iterable[DaemonSet]) -> Iterator[DaemonSet]:
    """The DaemonSets that run a pod on a node once it has started."""
    taints = [taint for taint in node.spec.taints if not _passes(taint)]
    for daemonset in daemonsets:
        spec = daemonset.spec.template.spec
        pod = Pod(metadata=daemonset.metadata, spec=spec)
        if (
            daemonset.metadata.deletion_timestamp is None
            and spec.scheduler_name == "default-scheduler"
            and not untolerated(taints, spec.tolerations, (NO_SCHEDULE, NO_EXECUTE))
            and node_matches(shape_of(pod), node)
        ):
            yield daemonset


def missing(node: Node, daemonsets: Iterable[DaemonSet], there: Iterable[Pod]) -> list[str]:
    """The DaemonSets whose pod is not on the node yet."""
    owners = {owner.uid for pod in there for owner in pod.metadata.owner_references}
    return [daemonset.metadata.key for daemonset in expected(node, daemonsets) if daemonset.metadata.uid not in owners]


def _passes(taint: Taint) -> bool:
    """Whether a taint is removed while the node starts, or is ours."""
    return ephemeral(taint) or taint.key in (wellknown.PLACING, UNSCHEDULABLE)
