"""Which pods are provisionable, and which are reschedulable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.cluster.pdb import PdbIndex
from dovetail.controllers.provisioning.provisionable_pods import provisionable, queued, reschedulable
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget

MARKED = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def _pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    body = {"metadata": {"name": "p", "namespace": "default", "labels": {"app": "x"}, **metadata}}
    return msgspec.convert({**body, "spec": spec or {}, "status": MARKED if status is None else status}, Pod)


def test_an_unschedulable_pod_is_provisionable() -> None:
    assert provisionable(_pod())


@pytest.mark.parametrize(
    "pod",
    [
        _pod(spec={"nodeName": "n"}),
        _pod(status={}),
        _pod(status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
        _pod(status={**MARKED, "nominatedNodeName": "n"}),
        _pod(status={**MARKED, "phase": "Failed"}),
        _pod(deletionTimestamp="2026-01-01T00:00:00Z"),
        _pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "uid": "u"}]),
        _pod(ownerReferences=[{"kind": "Node", "name": "n", "uid": "u"}]),
    ],
)
def test_other_pods_are_not_provisionable(pod: Pod) -> None:
    assert not provisionable(pod)


def test_a_pod_in_the_schedulers_queue_is_planned_along_unless_it_has_another_scheduler() -> None:
    assert queued(_pod(status={}))
    assert not queued(_pod())
    assert not queued(_pod(status={}, spec={"schedulerName": "volcano"}))
    assert not queued(_pod(status={}, spec={"schedulingGates": [{"name": "g"}]}))


def _budget(**spec: Any) -> PodDisruptionBudget:
    selector = {"matchLabels": {"app": "x"}}
    return msgspec.convert(
        {"metadata": {"namespace": "default"}, "spec": {"selector": selector, **spec}}, PodDisruptionBudget
    )


def test_pods_of_a_terminating_node_that_are_recreated_are_reschedulable() -> None:
    assert reschedulable(_pod(), PdbIndex([_budget(maxUnavailable=1)]))
    ordered = [{"kind": "StatefulSet", "uid": "u"}]
    assert reschedulable(_pod(deletionTimestamp="2026-01-01T00:00:00Z", ownerReferences=ordered), PdbIndex([]))


def test_pods_that_may_not_be_evicted_are_not_reschedulable() -> None:
    assert not reschedulable(_pod(), PdbIndex([_budget(maxUnavailable=0)]))
    assert not reschedulable(_pod(), PdbIndex([_budget(minAvailable="100%")]))
    assert not reschedulable(_pod(), PdbIndex([_budget(maxUnavailable=1), _budget(maxUnavailable=2)]))
    assert not reschedulable(_pod(annotations={"karpenter.sh/do-not-disrupt": "true"}), PdbIndex([]))
    assert not reschedulable(_pod(deletionTimestamp="2026-01-01T00:00:00Z"), PdbIndex([]))
