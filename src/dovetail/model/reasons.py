"""The closed vocabulary of reasons: why a thing did not happen, whose turn it is, and the remedy.

Every code that Dovetail says is a row here, and every row is said somewhere; a test holds both. The class says who
must act: `wait` (it passes by itself), `change` (the workload's or pool's owner), `admin` (the cluster's or account's
owner), `bug` (us).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dovetail.language import translated

Class = Literal["wait", "change", "admin", "bug"]


class Reason(msgspec.Struct, frozen=True):
    """`text` and `remedy` may name facts in braces; `message` fills them in."""

    code: str
    kind: Class
    text: str
    remedy: str

    def message(self, **facts: object) -> str:
        """The reason in words, with its facts; a fact that is not given stays out of the way."""
        return self.text.format_map(_Silent(facts))

    def in_words(self) -> str:
        """The reason without its facts, in the reader's language: what a code means."""
        return translated(self.text)


class _Silent(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "?"


_TABLE: tuple[tuple[str, Class, str, str], ...] = (
    # Nothing to launch for this pod.
    ("NO_NODEPOOL", "admin", "there is no NodePool that is ready", "create a NodePool, or see why none is ready"),
    ("NO_TYPE_FITS", "change", "no instance type has room for {requests}", "ask for less, or allow larger types"),
    ("NO_TYPE_MATCHES", "change", "no instance type meets {requirement}", "ask for another, or widen the NodePool"),
    ("NO_OFFERING", "wait", "every offering that would do is out of capacity", "wait, or allow more zones and types"),
    ("NO_PRICE", "wait", "the offerings that would do have no known price", "allow other types, or wait for prices"),
    ("UNKNOWN_LABEL", "change", "no NodePool knows the label {key}", "correct the label, or declare it in a NodePool"),
    ("UNTOLERATED_TAINT", "change", "the pod does not tolerate {taint}", "add a toleration, or use another NodePool"),
    ("LIMIT_REACHED", "admin", "the limit of NodePool {pool} is reached: {limit}", "raise spec.limits"),
    ("MIN_VALUES", "change", "minValues of {key} cannot be met", "lower minValues, or widen the requirement"),
    ("RESERVATION_FULL", "wait", "every reservation that would do is full", "wait, or allow on-demand or spot"),
    ("NOT_WRITTEN", "admin", "its NodeClaim could not be written: {problem}", "let the autoscaler write NodeClaims"),
    # This pod, any node.
    ("UNREADABLE", "change", "{object} cannot be read: {why}", "correct the field"),
    ("DEVICES", "change", "it claims devices, which are not planned for", "ask for them as resources instead"),
    ("HOST_PORT_TAKEN", "change", "host port {port} is taken", "use another port, or none"),
    ("SPREAD", "change", "the topology spread over {key} forbids it", "raise maxSkew, or add domains"),
    ("AFFINITY", "change", "no pod to be close to by {key}", "start it, make room beside it, or loosen the affinity"),
    ("ANTI_AFFINITY", "change", "a pod to stay away from is there by {key}", "loosen the anti-affinity"),
    ("VOLUME_ZONE", "change", "its volume lives in {zone}", "let the pod and a NodePool go there, or move the volume"),
    ("VOLUME_LIMIT", "change", "the node can attach no more volumes", "use a larger type, or fewer volumes"),
    ("VOLUME_MISSING", "change", "its claim or that claim's class does not exist", "create it, or correct the name"),
    ("VOLUME_CLASS", "change", "its claim {claim} names no class", "name a StorageClass, or mark one as the default"),
    ("VOLUME_UNBOUND", "wait", "its claim {claim} is not bound yet", "wait for the volume; see kubectl describe pvc"),
    ("VOLUME_LOST", "change", "its claim or volume is gone or going", "bring it back, or make the claim anew"),
    (
        "VOLUME_IN_USE",
        "change",
        "its claim {claim} is for one pod, and another has it",
        "let the other pod end first, or give each a claim of its own",
    ),
    ("RUNAWAY", "admin", "{count} nodes were launched for it and none kept it", "see what drives its pods away"),
    ("GATED", "wait", "its scheduling gates hold it: {gates}", "let the controller that set the gates remove them"),
    (
        "DAEMON_NO_ROOM",
        "change",
        "its node {node} has no room for the DaemonSet's pod",
        "lower the DaemonSet's requests, or give it a priorityClassName so that it preempts other pods",
    ),
    (
        "STARTUP_TAINT",
        "admin",
        "node {node} still has the startup taint {taint}, and nothing has removed it",
        "start what removes the taint, often a DaemonSet, or delete it from the NodePool's startupTaints",
    ),
    # A node that may not be disrupted now.
    ("NOT_MANAGED", "wait", "the node has no NodeClaim of a NodePool", "nothing to do: it is not ours to remove"),
    ("NOT_INITIALIZED", "wait", "the node is still starting", "wait"),
    ("REBOOTING", "wait", "the node is rebooting", "wait"),
    ("DELETING", "wait", "the node is going already", "wait"),
    ("NOMINATED", "wait", "a pod is on its way to the node", "wait"),
    ("DO_NOT_DISRUPT_NODE", "change", "the node asks not to be disrupted", "remove karpenter.sh/do-not-disrupt"),
    ("DO_NOT_DISRUPT_POD", "change", "its pod asks not to be disrupted", "remove karpenter.sh/do-not-disrupt"),
    ("PDB", "change", "the PodDisruptionBudget {budget} allows no disruption", "loosen it, or add replicas"),
    ("MANY_BUDGETS", "change", "several PodDisruptionBudgets match its pod", "leave one: eviction takes no more"),
    # A node that may go, and stays.
    ("BUDGET", "wait", "the budget of NodePool {pool} is used up", "wait, or widen spec.disruption.budgets"),
    ("PODS_WOULD_NOT_FIT", "change", "its pods fit nowhere else", "loosen the pods' constraints"),
    ("NOT_CHEAPER", "wait", "nothing cheaper would hold its pods", "nothing to do"),
    (
        "NEAR_BEST",
        "wait",
        "no cheaper replacement: the fleet costs about as much as a freshly planned one",
        "nothing to do",
    ),
    ("NOT_BALANCED", "wait", "the saving is not worth the disruption", "wait, or use WhenEmptyOrUnderutilized"),
    ("NOT_LOOKED_AT", "wait", "other nodes came first", "wait for the next pass"),
    ("SPOT_TO_SPOT_OFF", "admin", "spot is not replaced by spot", "enable the feature gate SpotToSpotConsolidation"),
    ("SPOT_INFLEXIBLE", "admin", "too few cheaper spot types to choose from", "allow more instance types"),
    # The cloud said no.
    ("UNAUTHORIZED", "admin", "AWS refused: {action}", "grant the action to the controller's role"),
    ("QUOTA", "admin", "an AWS quota is reached: {quota}", "raise the quota"),
    ("SUBNET_FULL", "admin", "no subnet in {zone} has addresses left", "add a subnet"),
    ("BAD_NODECLASS", "admin", "the EC2NodeClass {name} cannot be used: {why}", "correct the EC2NodeClass"),
    ("THROTTLED", "wait", "AWS asks to slow down", "wait"),
    ("CLOUD_ERROR", "wait", "AWS failed: {error}", "wait; it is tried again"),
    ("NEVER_JOINED", "admin", "the node ran and never joined the cluster", "see its console output and its role"),
    (
        "MANY_ORPHANS",
        "admin",
        "{orphans} of {fleet} nodes have no claim in this cluster",
        "bring the claims back, or let no other cluster use this cluster's name; after an hour the nodes go",
    ),
    (
        "CLOUD_EMPTY",
        "admin",
        "the cloud does not list the instances of {unlisted} of {claims} NodeClaims",
        "check the region, account and role of the controller's credentials; nothing is deleted until they are listed",
    ),
    # Ours.
    (
        "DRIFT_REPEATS",
        "admin",
        "NodeClaim {claim}, launched from the current NodePool and NodeClass, drifted from them ({reason})",
        "change the NodePool's requirements or the NodeClass so that a new node meets them; drift then goes on",
    ),
    (
        "NO_AUTOSCALER",
        "admin",
        "no autoscaler is running: its lease {name} was last renewed at {stamp}, see its log",
        "start the controller; dovetail doctor says what keeps it from running",
    ),
    ("PLAN_REFUSED", "bug", "the plan did not pass its own check: {violation}", "report it with the decision id"),
)

REASONS: dict[str, Reason] = {row[0]: Reason(*row) for row in _TABLE}


def reason(code: str) -> Reason:
    """The reason of a code; an unknown code is a programming error."""
    return REASONS[code]
