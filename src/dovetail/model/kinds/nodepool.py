"""NodePool v1: which nodes may be launched for pods, and when they are disrupted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from dovetail.model import duration
from dovetail.model.kinds.common import (
    AMOUNT,
    DURATION_OR_NEVER,
    EXPIRE_AFTER,
    LABEL_VALUE,
    REQUIREMENTS,
    STARTUP_TAINTS,
    TAINTS,
    TERMINATION_GRACE,
    NodeClassRef,
    PoolTerm,
    Taint,
    label_rules,
)
from dovetail.model.kinds.conditions import CONDITIONS, StatusCondition
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.meta import Amount, ObjectMeta, View

REASONS = ("Underutilized", "Empty", "Drifted", "Unhealthy")
POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")

BUDGET_DURATION = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
BUDGET_NODES = r"^((100|[0-9]{1,2})%|[0-9]+)$"
BUDGET_SCHEDULE = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
SCHEDULE_RULE = SchemaRule(
    "self.all(x, has(x.schedule) == has(x.duration))",
    "'schedule' must be set with 'duration'",
    lambda budgets: all(("schedule" in budget) == ("duration" in budget) for budget in budgets),
)


class Budget(View, frozen=True, kw_only=True):
    """A cap on voluntary disruption; `dovetail.model.kinds.budgets` evaluates it."""

    reasons: Annotated[
        tuple[str, ...] | None,
        Field(
            "Reasons the budget is for. Left out, it is for all of them.",
            max_items=50,
            list_type="set",
            each=Field(enum=REASONS),
        ),
    ] = None
    nodes: Annotated[
        str,
        Field(
            "How many nodes of the pool may be on their way out at once: a number, or a percentage that is "
            "rounded up. 0 stops disruption.",
            required=True,
            pattern=BUDGET_NODES,
            default="10%",
        ),
    ] = "10%"
    schedule: Annotated[
        str | None,
        Field(
            "Cron line, in UTC, that says when the budget begins to apply; it goes with `duration`. Left out, the "
            "budget always applies.",
            pattern=BUDGET_SCHEDULE,
        ),
    ] = None
    duration: Annotated[
        str | None,
        Field("How long the budget applies after each start, in hours and minutes.", pattern=BUDGET_DURATION),
    ] = None


BUDGETS = Field(
    "Caps on how many nodes may be disrupted at once. Of those that apply, the smallest counts.",
    max_items=50,
    list_type="atomic",
    default=[{"nodes": "10%"}],
    rules=(SCHEDULE_RULE,),
)


class Disruption(View, frozen=True, kw_only=True):
    """When nodes are disrupted."""

    consolidate_after: Annotated[
        str,
        Field(
            "How long a node must be quiet (no pod coming or going) before it may be consolidated. Never turns "
            "consolidation off.",
            pattern=DURATION_OR_NEVER,
            default="0s",
        ),
    ] = "0s"
    consolidation_policy: Annotated[
        str,
        Field(
            "Which nodes may be consolidated: empty ones, empty or badly used ones, or those whose saving is "
            "worth the disruption.",
            enum=POLICIES,
            default="WhenEmptyOrUnderutilized",
        ),
    ] = "WhenEmptyOrUnderutilized"
    budgets: Annotated[tuple[Budget, ...], BUDGETS] = (Budget(),)

    @property
    def quiet_time(self) -> timedelta | None:
        """How long a node must be quiet; None is never, and so is a time too long to count."""
        return duration.countable(self.consolidate_after)


class UnsaidMap(dict[str, str]):
    """A map that was not written: as empty as `{}`, but Karpenter's hash of a template tells them apart."""


class UnsaidList(tuple[Any, ...]):
    """A list that was not written."""

    __slots__ = ()


UNSAID_MAP: Mapping[str, str] = UnsaidMap()
UNSAID_LIST: tuple[Any, ...] = UnsaidList()


class TemplateMeta(View, frozen=True, kw_only=True):
    """What every node of the pool is labelled and annotated with."""

    labels: Annotated[
        Mapping[str, str],
        Field(
            "Labels that every node of the pool gets.",
            map_type="atomic",
            max_properties=100,
            each=Field(max_length=63, pattern=LABEL_VALUE),
            rules=label_rules(of_map=True, pool=True),
        ),
    ] = UNSAID_MAP
    annotations: Annotated[
        Mapping[str, str], Field("Annotations that every node of the pool gets.", map_type="granular")
    ] = UNSAID_MAP


class TemplateSpec(View, frozen=True, kw_only=True):
    """What a node of the pool is asked to be."""

    requirements: Annotated[tuple[PoolTerm, ...], REQUIREMENTS] = ()
    taints: Annotated[tuple[Taint, ...], TAINTS] = UNSAID_LIST
    startup_taints: Annotated[tuple[Taint, ...], STARTUP_TAINTS] = UNSAID_LIST
    node_class_ref: Annotated[
        NodeClassRef,
        Field(
            "The node class with the cloud's settings.",
            required=True,
            rules=(
                SchemaRule(
                    "self.group == oldSelf.group",
                    "nodeClassRef.group is immutable",
                    moves=lambda new, old: bool(new["group"] == old["group"]),
                ),
                SchemaRule(
                    "self.kind == oldSelf.kind",
                    "nodeClassRef.kind is immutable",
                    moves=lambda new, old: bool(new["kind"] == old["kind"]),
                ),
            ),
        ),
    ] = NodeClassRef()
    expire_after: Annotated[str, EXPIRE_AFTER] = "720h"
    termination_grace_period: Annotated[str | None, TERMINATION_GRACE] = None


class Template(View, frozen=True, kw_only=True):
    metadata: Annotated[TemplateMeta, Field("Labels and annotations of the nodes.")] = TemplateMeta()
    spec: Annotated[TemplateSpec, Field("What the nodes are asked to be.", required=True)] = TemplateSpec()


class NodePoolSpec(View, frozen=True, kw_only=True):
    template: Annotated[
        Template,
        Field(
            "The node that is launched, as far as it is fixed. Changing it makes existing nodes drift, but for "
            "requirements they still meet.",
            required=True,
        ),
    ] = Template()
    disruption: Annotated[
        Disruption,
        Field("When nodes are disrupted.", default={"consolidateAfter": "0s"}),
    ] = Disruption()
    limits: Annotated[
        Mapping[str, Amount],
        Field(
            "The most the pool may hold in all, per resource; `nodes` counts nodes. A purchase that would go over "
            "is not made.",
            each=AMOUNT,
        ),
    ] = {}
    weight: Annotated[
        int | None,
        Field("Preference among pools: the heavier is tried first.", format="int32", minimum=1, maximum=100),
    ] = None
    replicas: Annotated[
        int | None,
        Field(
            "Number of nodes to keep whatever the pods ask: a static pool. Such a pool has no weight and may limit "
            "`nodes` alone.",
            format="int64",
            minimum=0,
        ),
    ] = None


def _static_limits(spec: Mapping[str, object]) -> bool:
    limits = spec.get("limits")
    return "replicas" not in spec or not isinstance(limits, Mapping) or not limits or set(limits) == {"nodes"}


SPEC_RULES = (
    SchemaRule(
        "has(self.replicas) == has(oldSelf.replicas)",
        "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
        moves=lambda new, old: ("replicas" in new) == ("replicas" in old),
    ),
    SchemaRule(
        "!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || "
        "(size(self.limits) == 1 && 'nodes' in self.limits))",
        "only 'limits.nodes' is supported on static NodePools",
        _static_limits,
    ),
    SchemaRule(
        "!has(self.replicas) || !has(self.weight)",
        "'weight' is not supported on static NodePools",
        lambda spec: not ("replicas" in spec and "weight" in spec),
    ),
)


class NodePoolStatus(View, frozen=True, kw_only=True):
    resources: Annotated[Mapping[str, Amount], Field("What the pool's nodes hold in all.", each=AMOUNT)] = {}
    nodes: Annotated[int, Field("Number of the pool's nodes.", format="int64", default=0)] = 0
    node_class_observed_generation: Annotated[
        int, Field("Generation of the node class that the health of registrations was measured on.", format="int64")
    ] = 0
    conditions: Annotated[tuple[StatusCondition, ...], CONDITIONS] = ()


class NodePool(View, frozen=True, kw_only=True):
    """A pool of nodes. Which nodes may be launched for pods, and when they are disrupted."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodePoolSpec, Field("What you ask for.", required=True, rules=SPEC_RULES)] = NodePoolSpec()
    status: Annotated[NodePoolStatus, Field("What is there.")] = NodePoolStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def static(self) -> bool:
        """A static pool keeps a number of nodes; pods do not make it grow."""
        return self.spec.replicas is not None
