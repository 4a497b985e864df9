"""The names we write on other people's objects: Karpenter's, and the few that are ours."""

from __future__ import annotations

from datetime import datetime

from dovetail.model.labels import CAPACITY_TYPE as CAPACITY_TYPE
from dovetail.model.labels import DO_NOT_SYNC_TAINTS as DO_NOT_SYNC_TAINTS
from dovetail.model.labels import HOSTNAME as HOSTNAME
from dovetail.model.labels import INITIALIZED as INITIALIZED
from dovetail.model.labels import INSTANCE_TYPE as INSTANCE_TYPE
from dovetail.model.labels import NODEPOOL as NODEPOOL
from dovetail.model.labels import REGION as REGION
from dovetail.model.labels import REGISTERED as REGISTERED
from dovetail.model.labels import ZONE as ZONE
from dovetail.model.nodes import Taint
from dovetail.model.taints import DISRUPTED as DISRUPTED_TAINT
from dovetail.model.taints import NO_SCHEDULE
from dovetail.model.taints import UNREGISTERED as UNREGISTERED_TAINT

FINALIZER = "karpenter.sh/termination"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
DO_NOT_REPAIR = "karpenter.sh/do-not-repair"
#: Of a claim whose node is rebooted: the boot before, and how long the drain may take.
REBOOT_PRE_BOOT_ID = "karpenter.sh/reboot-pre-boot-id"
REBOOT_GRACE = "karpenter.sh/reboot-termination-grace-period"
REBOOTING_TAINT = Taint(key="karpenter.sh/rebooting", effect=NO_SCHEDULE)

#: The decision that created a claim, the pods it was created for, and its price when it was planned.
DECISION = "dovetail.sh/decision"
PODS = "dovetail.sh/pods"
PRICE = "dovetail.sh/price"
#: The generation of the NodePool that a claim was made from.
NODEPOOL_GENERATION = "dovetail.sh/nodepool-generation"
#: Annotations of a claim that do not go to its node.
PRIVATE = frozenset({PODS, NODEPOOL_GENERATION})
#: When a claim's node was rebooted lately.
REBOOTS = "dovetail.sh/reboots"

#: On a node that its planned pods have not been bound to yet: no other pod may come first. The value is when it
#: expires, in seconds since 1970: a taint that outlives its writer is removed then.
PLACING = "dovetail.sh/placing"
#: How long the taint may stand, in seconds: longer than nodes take from registration to the last binding.
PLACING_LIFETIME_S = 900.0

__all__ = ["DISRUPTED_TAINT", "UNREGISTERED_TAINT"]


def placing_taint(now: datetime, effect: str = NO_SCHEDULE) -> Taint:
    """The taint of a node that is being filled, with its expiry as its value."""
    return Taint(key=PLACING, value=str(int(now.timestamp() + PLACING_LIFETIME_S)), effect=effect)


def placing_expires(taint: Taint) -> float:
    """When a taint of ours expires, in seconds since 1970; one without a readable value has expired."""
    return float(taint.value) if taint.value.isdecimal() and len(taint.value) < 16 else 0.0


def node_class_label(group: str, kind: str) -> str:
    """The label that names a node's class: `karpenter.k8s.aws/ec2nodeclass`."""
    return f"{group}/{kind.lower()}"
