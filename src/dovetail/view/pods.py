"""How pods are seen: on their node, or pending with the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dovetail.controllers.history.decisions import Decision, Refusal
from dovetail.language import message
from dovetail.model.meta import condition, stamp
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod, owned_by
from dovetail.model.quantity import QuantityError
from dovetail.model.reasons import REASONS
from dovetail.view.model import Amounts, PendingPod, PodView

#: The label that tells the ReplicaSets of a Deployment apart is the end of their names.
_TEMPLATE_HASH = "pod-template-hash"
_JOB_OF_CRONJOB = re.compile(r"-\d{8,}$")


class Refused:
    """Why pods are unschedulable, by the newest decision that says so."""

    def __init__(self, decisions: Sequence[Decision] = ()) -> None:
        self._by_pod: dict[str, tuple[Refusal, Decision]] = {}
        self._partial: list[tuple[Refusal, Decision]] = []
        for decision in decisions:
            for refusal in decision.refusals:
                self._by_pod.update(dict.fromkeys(refusal.pods, (refusal, decision)))
                if refusal.count > len(refusal.pods):
                    self._partial.append((refusal, decision))

    def of(self, pod: Pod, alike: frozenset[str]) -> tuple[Refusal, str] | None:
        """`alike` are the pending pods of the same workload: where a refusal does not name all of its pods.

        What was decided before the pod was created is about an earlier pod of its name.
        """
        created = pod.metadata.creation_timestamp
        oldest = stamp(created) if created is not None else ""
        entry_and_decision = self._by_pod.get(pod.metadata.key)
        if entry_and_decision is None:
            entry_and_decision = next(
                (entry for entry in reversed(self._partial) if not alike.isdisjoint(entry[0].pods)), None
            )
        return (
            (entry_and_decision[0], entry_and_decision[1].id)
            if entry_and_decision is not None and entry_and_decision[1].time >= oldest
            else None
        )


def workload(pod: Pod) -> str:
    """The workload a pod belongs to, as `Kind/name`: the Deployment of a ReplicaSet, the CronJob of a Job."""
    owner = pod.metadata.controller
    if owner is None:
        return f"Pod/{pod.metadata.name}"
    template = pod.metadata.labels.get(_TEMPLATE_HASH)
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return f"Deployment/{owner.name.removesuffix(f'-{template}')}"
    if owner.kind == "Job" and _JOB_OF_CRONJOB.search(owner.name):
        return f"CronJob/{_JOB_OF_CRONJOB.sub('', owner.name)}"
    return f"{owner.kind}/{owner.name}"


def pod_view(pod: Pod) -> PodView:
    ready = condition(pod.status.conditions, "Ready")
    return PodView(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        workload=workload(pod),
        phase=pod.status.phase or "Pending",
        requests=_requests(pod),
        daemon=owned_by(pod, "DaemonSet", "Node"),
        terminating=pod.terminating,
        ready=None if ready is None else ready.status == "True",
        created=pod.metadata.creation_timestamp,
    )


def pending_view(pod: Pod, waits_for: str, refusal: tuple[Refusal, str] | None, scheduler_says: str) -> PendingPod:
    """`waits_for` is what it is nominated for; `scheduler_says` the last message of kube-scheduler, if any."""
    code, decision, remedy = "", "", ""
    if pod.spec.scheduling_gates:
        reason = message(
            "held by its scheduling gates: {scheduling_gates}",
            scheduling_gates=", ".join(gate.name for gate in pod.spec.scheduling_gates),
        )
    elif waits_for:
        reason = message("waits for {waits_for}", waits_for=waits_for)
    elif refusal is not None:
        reason, code, decision = refusal[0].message, refusal[0].code, refusal[1]
        remedy = _remedy(refusal[0])
    elif scheduler_says:
        reason = scheduler_says
    elif condition(pod.status.conditions, "PodScheduled") is None:
        reason = message("kube-scheduler has not tried it yet")
    else:
        reason = message("unschedulable; no autoscaler has planned for it yet")
    return PendingPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        workload=workload(pod),
        requests=_requests(pod),
        reason=reason,
        code=code,
        remedy=remedy,
        waits_for=waits_for,
        decision=decision,
        created=pod.metadata.creation_timestamp,
    )


def _remedy(refusal: Refusal) -> str:
    blamed = next(iter(refusal.pools.values()), None)
    entry = REASONS.get(refusal.code)
    return (blamed.remedy if blamed is not None else "") or (entry.remedy if entry is not None else "")


def _requests(pod: Pod) -> Amounts | None:
    try:
        return requests(pod)
    except QuantityError:
        return None
