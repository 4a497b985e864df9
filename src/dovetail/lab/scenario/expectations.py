"""A scenario's expectations against its outcome, in messages that name both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping

from dovetail.kube.client import Kube
from dovetail.kube.resources import DEPLOYMENTS, NODECLAIMS, NODES, STATEFULSETS
from dovetail.lab.scenario.schema import Expect
from dovetail.language import message
from dovetail.model.labels import NODEPOOL
from dovetail.model.nodes import Node
from dovetail.model.taints import DISRUPTED

#: Seconds without a launch or a termination that count as rest.
REST = 300.0


def failed_expectations(
    expect: Expect, end: Mapping[str, int], totals: Mapping[str, int], reasons: Collection[str], said: Collection[str]
) -> list[str]:
    """Every expectation that does not hold.

    `end` is the cluster at the end, `totals`, `reasons` and `said` what happened and was said on the way.
    """
    counted = {
        "launched": totals.get("instances launched", 0),
        "terminated": totals.get("instances terminated", 0),
        "disruptions": totals.get("disruptions", 0),
        "evictions": totals.get("evictions", 0),
        "nodes": end["nodes"],
    }
    texts = []
    for name in ("ready", "pending"):
        expected = getattr(expect, name)
        if expected is not None and end[name] != expected:
            texts.append(
                message(
                    "expected {wanted} pods {name} at the end, not {end}", wanted=expected, name=name, end=end[name]
                )
            )
    for name, value in counted.items():
        least, most = getattr(expect, f"{name}_at_least", None), getattr(expect, f"{name}_at_most", None)
        if least is not None and value < least:
            texts.append(
                message(
                    "expected at least {least} {replace}, not {value}",
                    least=least,
                    replace=name.replace("_", " "),
                    value=value,
                )
            )
        if most is not None and value > most:
            texts.append(
                message(
                    "expected at most {most} {replace}, not {value}",
                    most=most,
                    replace=name.replace("_", " "),
                    value=value,
                )
            )
    texts += [
        message("expected an event {reason}, there was none", reason=reason)
        for reason in expect.reasons
        if reason not in reasons
    ]
    texts += [
        message("expected the log to say {words!r}, it did not", words=words)
        for words in expect.said
        if words not in said
    ]
    return texts


async def unsettled(kube: Kube, at_rest: float) -> AsyncIterator[str]:
    """What has not come to rest; `at_rest` is the time since the last launch or termination."""
    if at_rest < REST:
        yield message(
            "expected rest, an instance was launched or terminated {at_rest:.0f} s before the end", at_rest=at_rest
        )
    for obj in [*(await kube.list(DEPLOYMENTS)).items, *(await kube.list(STATEFULSETS)).items]:
        expected, ready = obj["spec"]["replicas"], obj["status"].get("readyReplicas", 0)
        if expected != ready:
            yield message(
                "expected {wanted} ready pods of {name}, not {ready}",
                wanted=expected,
                name=obj["metadata"]["name"],
                ready=ready,
            )
    for obj in (await kube.list(NODECLAIMS)).items:
        if "deletionTimestamp" in obj["metadata"]:
            yield message("expected rest, nodeclaim {name} is on its way out", name=obj["metadata"]["name"])
    for node in (await kube.list(NODES, labels=NODEPOOL, type=Node)).items:
        if not node.ready:
            yield message("expected rest, node {node} is not ready", node=node.metadata.name)
        if any(taint.key == DISRUPTED.key for taint in node.spec.taints):
            yield message("expected rest, node {node} is tainted for disruption", node=node.metadata.name)
