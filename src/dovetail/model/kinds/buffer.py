"""CapacityBuffer v1beta1: room kept free for pods that have not come yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from dovetail.model.kinds.common import AMOUNT
from dovetail.model.kinds.conditions import CONDITIONS, StatusCondition
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.meta import Amount, ObjectMeta, View


class TemplateRef(View, frozen=True, kw_only=True):
    name: Annotated[str, Field("Name of the PodTemplate, in the buffer's namespace.", required=True, min_length=1)] = ""


class ScalableRef(View, frozen=True, kw_only=True):
    api_group: Annotated[str, Field("API group of the workload.")] = ""
    kind: Annotated[str, Field("Kind of the workload.", required=True, min_length=1)] = ""
    name: Annotated[str, Field("Name of the workload.", required=True, min_length=1)] = ""


class CapacityBufferSpec(View, frozen=True, kw_only=True):
    provisioning_strategy: Annotated[str, Field("How the room is kept.", default="buffer.x-k8s.io/active-capacity")] = (
        "buffer.x-k8s.io/active-capacity"
    )
    pod_template_ref: Annotated[TemplateRef | None, Field("Pod that the room is for.")] = None
    scalable_ref: Annotated[ScalableRef | None, Field("Workload whose pods the room is for.")] = None
    replicas: Annotated[int | None, Field("Room for this many pods.", format="int32", minimum=0)] = None
    percentage: Annotated[
        int | None, Field("Room for this share of the workload's replicas, rounded up.", format="int32", minimum=0)
    ] = None
    limits: Annotated[Mapping[str, Amount], Field("The most resources the room may take.", each=AMOUNT)] = {}


class CapacityBufferStatus(View, frozen=True, kw_only=True):
    pod_template_ref: Annotated[TemplateRef | None, Field("Pod template in use.")] = None
    pod_template_generation: Annotated[int | None, Field("Generation of the pod template in use.", format="int64")] = (
        None
    )
    provisioning_strategy: Annotated[str, Field("How the room is kept.")] = ""
    replicas: Annotated[int | None, Field("Number of pods that room is kept for.", format="int32")] = None
    conditions: Annotated[tuple[StatusCondition, ...], CONDITIONS] = ()


SPEC_RULES = (
    SchemaRule(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "If podTemplateRef is set, replicas or limits must also be set",
        lambda spec: "podTemplateRef" not in spec or "replicas" in spec or "limits" in spec,
    ),
    SchemaRule(
        "!(has(self.podTemplateRef) && has(self.scalableRef))",
        "You must define either PodTemplateRef or ScalableRef, but not both",
        lambda spec: not ("podTemplateRef" in spec and "scalableRef" in spec),
    ),
)


class CapacityBuffer(View, frozen=True, kw_only=True):
    """Room kept free, so that pods need not wait for a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CapacityBufferSpec, Field("Room to keep.", required=True, rules=SPEC_RULES)] = CapacityBufferSpec()
    status: Annotated[CapacityBufferStatus, Field("Room kept.")] = CapacityBufferStatus()
