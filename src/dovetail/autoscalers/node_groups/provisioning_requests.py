"""ProvisioningRequests: capacity for a set of pods that do not exist yet, all of it or none.

`check-capacity` asks whether the cluster has room for them now; `best-effort-atomic-scale-up` lets one group grow for
them. Capacity that was found is booked for ten minutes, so that the pods which consume it find it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.model.meta import Condition, ObjectMeta, OwnerReference, View, condition
from dovetail.model.pods import Pod, PodTemplateSpec

GROUP = "autoscaling.x-k8s.io"
CHECK_CAPACITY = f"check-capacity.{GROUP}"
BEST_EFFORT_ATOMIC = f"best-effort-atomic-scale-up.{GROUP}"
CLASSES = (CHECK_CAPACITY, BEST_EFFORT_ATOMIC)
CONSUME = f"{GROUP}/consume-provisioning-request"
CLASS_NAME = f"{GROUP}/provisioning-class-name"
#: Its name before the API had a group of its own.
OLD_CONSUME = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
NO_RETRY = "noRetry"
ACCEPTED, PROVISIONED, FAILED = "Accepted", "Provisioned", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
BOOKING = timedelta(minutes=10)
PENDING_LIFE = timedelta(days=7)
ENDED_LIFE = timedelta(days=7)


class TemplateRef(View, frozen=True, kw_only=True):
    """A PodTemplate of the same namespace."""

    name: str = ""


class PodSet(View, frozen=True, kw_only=True):
    """So many pods of one template."""

    pod_template_ref: TemplateRef = TemplateRef()
    count: int = 0


class RequestSpec(View, frozen=True, kw_only=True):
    """Immutable once it is created."""

    pod_sets: tuple[PodSet, ...] = ()
    provisioning_class_name: str = ""
    parameters: Mapping[str, str] = {}


class RequestStatus(View, frozen=True, kw_only=True):
    """What became of it."""

    conditions: tuple[Condition, ...] = ()
    provisioning_class_details: Mapping[str, str] = {}


class ProvisioningRequest(View, frozen=True, kw_only=True):
    """One request, as the API server has it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RequestSpec = RequestSpec()
    status: RequestStatus = RequestStatus()

    def is_true(self, kind: str) -> bool:
        current = condition(self.status.conditions, kind)
        return current is not None and current.status == "True"

    def since(self, kind: str) -> datetime | None:
        """When the condition became what it is."""
        current = condition(self.status.conditions, kind)
        return current.last_transition_time if current is not None else None

    @property
    def retries(self) -> bool:
        return self.spec.parameters.get(NO_RETRY) != "true"


class PodTemplate(View, frozen=True, kw_only=True):
    """What a request's pods are made of."""

    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplateSpec = PodTemplateSpec()


class RequestCondition(msgspec.Struct, frozen=True):
    """A condition to set."""

    kind: str
    status: bool
    reason: str
    message: str


ACCEPTED_VERDICT = RequestCondition(ACCEPTED, True, "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler.")
FOUND = RequestCondition(PROVISIONED, True, "CapacityIsFound", "Capacity is found in the cluster.")
SCALED_UP = RequestCondition(PROVISIONED, True, "CapacityIsProvisioned", "Capacity is provisioned in the cluster.")
NOT_FOUND = RequestCondition(
    PROVISIONED, False, "CapacityIsNotFound", "Capacity is not found, ClusterAutoscaler will try to find it later."
)
GIVEN_UP = RequestCondition(
    FAILED, True, "CapacityIsNotFound", "Capacity is not found, and the request asks for no retry."
)
EXPIRED = RequestCondition(FAILED, True, "Expired", "ProvisioningRequest was not provisioned in seven days.")
BOOKING_OVER = RequestCondition(
    BOOKING_EXPIRED, True, "BookingExpired", "The booking is over, other pods may use the capacity."
)


def broken(problem: str) -> RequestCondition:
    """The request cannot be carried out as it is."""
    return RequestCondition(FAILED, True, "FailedToCreatePods", problem)


def is_open(request: ProvisioningRequest) -> bool:
    """Whether capacity is still to be found for it."""
    return request.spec.provisioning_class_name in CLASSES and not any(
        request.is_true(kind) for kind in (PROVISIONED, FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED)
    )


def is_booked(request: ProvisioningRequest, now: datetime) -> bool:
    """Whether its capacity is kept from other pods."""
    since = request.since(PROVISIONED)
    if request.is_true(FAILED) or request.is_true(BOOKING_EXPIRED) or request.is_true(CAPACITY_REVOKED):
        return False
    return request.is_true(PROVISIONED) and since is not None and now < since + BOOKING


def ended(request: ProvisioningRequest, now: datetime) -> RequestCondition | None:
    """The end that time brings: of the booking, or of a request that nothing could be found for."""
    created, since = request.metadata.creation_timestamp, request.since(PROVISIONED)
    if is_open(request):
        return EXPIRED if created is not None and now >= created + PENDING_LIFE else None
    over = request.is_true(PROVISIONED) and not request.is_true(BOOKING_EXPIRED)
    return BOOKING_OVER if over and since is not None and now >= since + BOOKING else None


def is_obsolete(request: ProvisioningRequest, now: datetime) -> bool:
    """Whether it may be deleted."""
    times = [request.since(kind) for kind in (FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED) if request.is_true(kind)]
    return any(time is not None and now >= time + ENDED_LIFE for time in times)


def consumed(pod: Pod) -> str:
    """The request whose capacity a pod consumes; empty for other pods."""
    annotations = pod.metadata.annotations
    return annotations.get(CONSUME) or annotations.get(OLD_CONSUME, "")


def pods_of(request: ProvisioningRequest, templates: Mapping[str, PodTemplate]) -> list[Pod] | str:
    """The pods of a request, or why they cannot be made. `templates` by namespace/name."""
    meta = request.metadata
    if not request.spec.pod_sets:
        return "spec.podSets is empty"
    owner = OwnerReference(
        api_version=f"{GROUP}/v1", kind="ProvisioningRequest", name=meta.name, uid=meta.uid, controller=True
    )
    pods: list[Pod] = []
    for index, pod_set in enumerate(request.spec.pod_sets):
        name = pod_set.pod_template_ref.name
        template = templates.get(f"{meta.namespace}/{name}")
        if template is None:
            return f"PodTemplate {meta.namespace}/{name} does not exist"
        labels, annotations = template.template.metadata.labels, template.template.metadata.annotations
        marks = {**annotations, CONSUME: meta.name, CLASS_NAME: request.spec.provisioning_class_name}
        for number in range(pod_set.count):
            pod_name = f"{meta.name}-{index}-{number}"
            metadata = ObjectMeta(
                name=pod_name,
                namespace=meta.namespace,
                uid=f"{meta.uid}-{index}-{number}",
                labels=labels,
                annotations=marks,
                owner_references=(owner,),
                creation_timestamp=meta.creation_timestamp,
            )
            pods.append(Pod(metadata=metadata, spec=template.template.spec))
    return pods


def conditions(request: ProvisioningRequest, verdicts: Sequence[RequestCondition], now: str) -> list[dict[str, Any]]:
    """The conditions with these verdicts; the time of one that stays as it is stays too."""
    kept: list[dict[str, Any]] = [msgspec.to_builtins(current) for current in request.status.conditions]
    for verdict in verdicts:
        status = "True" if verdict.status else "False"
        earlier = next((current for current in kept if current["type"] == verdict.kind), None)
        same = earlier is not None and earlier["status"] == status
        time = earlier["lastTransitionTime"] if earlier is not None and same else now
        kept = [current for current in kept if current["type"] != verdict.kind]
        kept.append(
            {
                "type": verdict.kind,
                "status": status,
                "reason": verdict.reason,
                "message": verdict.message,
                "lastTransitionTime": time,
                "observedGeneration": request.metadata.generation,
            }
        )
    return kept
