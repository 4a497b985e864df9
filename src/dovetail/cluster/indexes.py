"""Stages of a NodeClaim or Node that few objects are in at a time: controllers of a stage need not scan all of them.

A stage follows from one object alone, so the stores of the cluster state index objects by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import RESERVED as OF_A_RESERVATION
from dovetail.model.nodes import Node
from dovetail.model.taints import same

#: The name of the index.
STAGE = "stage"
#: Not registered yet; not Consolidatable (pods came or went lately); Drifted; marked for disruption.
JOINING, NOT_CONSOLIDATABLE, DRIFTED, DISRUPTED = "joining", "not-consolidatable", "drifted", "disrupted"
RESERVED = "reserved"


def of_claim(claim: NodeClaim) -> Iterator[str]:
    status = {condition.type: condition.status for condition in claim.status.conditions}
    if status.get("Registered") != "True" and claim.metadata.deletion_timestamp is None:
        yield JOINING
    if status.get("Consolidatable") != "True":
        yield NOT_CONSOLIDATABLE
    if status.get("Drifted") == "True":
        yield DRIFTED
    if "DisruptionReason" in status:
        yield DISRUPTED
    if claim.metadata.labels.get(wellknown.CAPACITY_TYPE) == OF_A_RESERVATION:
        yield RESERVED


def of_node(node: Node) -> Iterator[str]:
    if any(same(taint, wellknown.DISRUPTED_TAINT) for taint in node.spec.taints):
        yield DISRUPTED
