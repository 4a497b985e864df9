"""The scale-up plan: which group grows by how many nodes for the pods that are pending.

Every group is asked whether it may grow and which pods would fit; the estimator says how many nodes those need; the
expander picks one group; similar groups share. What was refused is kept with its reasons, for events and explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum

import msgspec

from dovetail.autoscalers.node_groups.balancing import Increase, balance
from dovetail.autoscalers.node_groups.equivalence import PodGroup, pod_groups
from dovetail.autoscalers.node_groups.estimator import ScaleUpEstimate, admit, estimate
from dovetail.autoscalers.node_groups.expanders import Option
from dovetail.autoscalers.node_groups.limits import (
    EstimationContext,
    EstimationLimiter,
    Threshold,
    cluster_threshold,
    similar_groups_threshold,
)
from dovetail.autoscalers.node_groups.quotas import Quotas
from dovetail.autoscalers.node_groups.similarity import Comparator
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.cloud.node_groups import NodeGroup
from dovetail.model.fit import NodeInfo, PodInfo, Rejection
from dovetail.model.pods import Pod

IN_BACKOFF = "in backoff after failed scale-up"
MAX_SIZE_REACHED = "max node group size reached"
NOT_READY = "not ready for scale-up"
MAX_TOTAL_REACHED = "max total nodes in cluster reached"
ATOMIC_EXCEEDS_TOTAL = "atomic scale-up exceeds cluster node count limit"
ALL_OR_NOTHING = "not all pods would fit and scale-up is using all-or-nothing strategy"
FILTERED_OUT = "expansion options filtered out and no longer considered"


class ScaleUpResult(Enum):
    """How the attempt ended; the values are upstream's words in logs."""

    SUCCESSFUL = "ScaleUpSuccessful"
    NO_OPTIONS = "ScaleUpNoOptionsAvailable"
    NOT_NEEDED = "ScaleUpNotNeeded"
    NOT_TRIED = "ScaleUpNotTried"
    IN_COOLDOWN = "ScaleUpInCooldown"
    LIMITED_BY_MAX_TOTAL = "ScaleUpLimitedByMaxNodesTotal"
    ERROR = "ScaleUpError"


class ScaleUpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say about growing."""

    max_nodes_total: int = 0
    max_nodes_per_scale_up: int = 1000
    max_group_binpacking_s: float = 10.0
    max_binpacking_s: float = 300.0
    balance_similar: bool = False


class PodWithoutGroup(msgspec.Struct, frozen=True):
    """A pod that no group can help now: why groups reject it, and why others were not asked."""

    pod: Pod
    rejected: Mapping[str, tuple[str, ...]]
    skipped: Mapping[str, tuple[str, ...]]

    def message(self) -> str:
        """The reasons with how many groups have each, as events tell them."""
        counts: dict[str, int] = {}
        for reasons in (*self.rejected.values(), *self.skipped.values()):
            for reason in reasons:
                counts[reason] = counts.get(reason, 0) + 1
        return ", ".join(f"{count} {reason}" for reason, count in counts.items())


class ScaleUpPlan(msgspec.Struct, frozen=True):
    """What to do. `limited_by_total` tells that --max-nodes-total cut the size."""

    result: ScaleUpResult
    increases: tuple[Increase, ...] = ()
    triggered: tuple[Pod, ...] = ()
    refused: tuple[PodWithoutGroup, ...] = ()
    awaiting: tuple[Pod, ...] = ()
    option: Option | None = None
    options: tuple[Option, ...] = ()
    skipped: Mapping[str, tuple[str, ...]] = {}
    limited_by_total: bool = False


class ScaleUpInput(msgspec.Struct, frozen=True):
    """The cluster and the flags as one attempt sees them. `blocked` tells why a group may not grow, or None.

    `node_count` has the nodes that will come; `ready_count` has not, and is the same if it is not reported.
    """

    groups: Sequence[NodeGroup]
    templates: Mapping[str, NodeInfo]
    snapshot: ClusterSnapshot
    quotas: Quotas
    node_count: int
    settings: ScaleUpSettings
    blocked: Callable[[NodeGroup], str | None]
    comparator: Comparator
    choose: Callable[[Sequence[Option], Mapping[str, NodeInfo]], Option | None]
    ready_count: int | None = None


class _Matching:
    """Which pending pods fit on new nodes of which groups, and why the others do not."""

    def __init__(
        self,
        pod_groups: Sequence[PodGroup],
        usable: Sequence[NodeGroup],
        skipped: Mapping[str, tuple[str, ...]],
        scale_up_input: ScaleUpInput,
    ) -> None:
        self._pod_groups = pod_groups
        self._skipped = skipped
        #: By group: the pods that fit.
        self.fitting: dict[str, list[PodGroup]] = {group.id: [] for group in usable}
        self._rejections: list[dict[str, tuple[str, ...]]] = [{} for _ in pod_groups]
        snapshot, templates = scale_up_input.snapshot, scale_up_input.templates
        for group in usable:
            for pod_group, rejections in zip(pod_groups, self._rejections, strict=True):
                rejection = rejected_by(snapshot, snapshot.info(pod_group.exemplar), templates[group.id])
                if rejection is None:
                    self.fitting[group.id].append(pod_group)
                else:
                    rejections[group.id] = rejection.reasons
        self._helped = {id(pod_group) for pod_groups in self.fitting.values() for pod_group in pod_groups}

    def refused(self) -> tuple[PodWithoutGroup, ...]:
        """Pods that fit no group."""
        return tuple(
            PodWithoutGroup(pod, rejections, self._skipped)
            for pod_group, rejections in zip(self._pod_groups, self._rejections, strict=True)
            if id(pod_group) not in self._helped
            for pod in pod_group.pods
        )

    def all_refused(self, reason: str) -> tuple[PodWithoutGroup, ...]:
        """Every pod, where no group is used for this reason although some would fit."""
        refusals = dict.fromkeys(self.fitting, (reason,))
        return tuple(
            PodWithoutGroup(pod, {**rejections, **refusals}, self._skipped)
            for pod_group, rejections in zip(self._pod_groups, self._rejections, strict=True)
            for pod in pod_group.pods
        )

    def awaiting(self, group: str) -> tuple[Pod, ...]:
        """Pods that do not fit the group that grows, and fit another one."""
        return tuple(
            pod
            for pod_group, rejections in zip(self._pod_groups, self._rejections, strict=True)
            if id(pod_group) in self._helped and group in rejections
            for pod in pod_group.pods
        )


def plan_scale_up(pods: Sequence[Pod], scale_up_input: ScaleUpInput, *, all_or_nothing: bool = False) -> ScaleUpPlan:
    """The plan for these pending pods."""
    if is_at_max_total(scale_up_input):
        return ScaleUpPlan(
            ScaleUpResult.LIMITED_BY_MAX_TOTAL, refused=tuple(PodWithoutGroup(pod, {}, {}) for pod in pods)
        )
    usable, skipped = usable_groups(scale_up_input)
    matching = _Matching(pod_groups(pods), usable, skipped, scale_up_input)
    options = _options(pods, usable, matching.fitting, scale_up_input, all_or_nothing)
    if not options:
        return ScaleUpPlan(ScaleUpResult.NO_OPTIONS, refused=matching.refused(), skipped=skipped)
    best = scale_up_input.choose(options, scale_up_input.templates)
    if best is None or best.nodes <= 0:
        return ScaleUpPlan(ScaleUpResult.NO_OPTIONS, refused=matching.all_refused(FILTERED_OUT), skipped=skipped)
    count, limited = _capped(best.nodes, scale_up_input)
    template = scale_up_input.templates[best.group.id].node
    allowed = scale_up_input.quotas.check(template, count).allowed
    increases = [] if allowed <= 0 else _shares(best, allowed, scale_up_input)
    if all_or_nothing and sum(increase.delta for increase in increases) < best.nodes:
        return ScaleUpPlan(ScaleUpResult.NO_OPTIONS, refused=matching.all_refused(ALL_OR_NOTHING), skipped=skipped)
    if not increases:
        return ScaleUpPlan(
            ScaleUpResult.NO_OPTIONS, refused=matching.refused(), skipped=skipped, limited_by_total=limited
        )
    return ScaleUpPlan(
        ScaleUpResult.SUCCESSFUL,
        tuple(increases),
        best.pods,
        matching.refused(),
        matching.awaiting(best.group.id),
        best,
        tuple(options),
        skipped,
        limited,
    )


def is_at_max_total(scale_up_input: ScaleUpInput) -> bool:
    """Whether --max-nodes-total lets no group grow: then no pod is waited for either."""
    ready = scale_up_input.node_count if scale_up_input.ready_count is None else scale_up_input.ready_count
    return 0 < scale_up_input.settings.max_nodes_total <= ready


def usable_groups(scale_up_input: ScaleUpInput) -> tuple[list[NodeGroup], dict[str, tuple[str, ...]]]:
    """The groups that may grow, and why the others may not."""
    usable: list[NodeGroup] = []
    skipped: dict[str, tuple[str, ...]] = {}
    for group in scale_up_input.groups:
        reason = _skip_reason(group, scale_up_input)
        if reason is None:
            usable.append(group)
        else:
            skipped[group.id] = (reason,)
    return usable, skipped


def _skip_reason(group: NodeGroup, scale_up_input: ScaleUpInput) -> str | None:
    blocked = scale_up_input.blocked(group) if group.exists else None
    if blocked is not None:
        return blocked
    if group.target_size >= group.max_size:
        return MAX_SIZE_REACHED
    count = 1
    if group.options.zero_or_max:
        count = group.room
        total = scale_up_input.settings.max_nodes_total
        if total and scale_up_input.node_count + count > total:
            return ATOMIC_EXCEEDS_TOTAL
    template = scale_up_input.templates.get(group.id)
    if template is None:
        return NOT_READY
    check = scale_up_input.quotas.check(template.node, count)
    return check.message() if check.exceeded else None


def rejected_by(snapshot: ClusterSnapshot, info: PodInfo, template: NodeInfo) -> Rejection | None:
    """Why the pod would not run on a new node of the template, or None if it would."""
    fit = snapshot.fit(info)
    if fit.rejection is not None:
        return fit.rejection
    if fit.plain:
        return fit.check(template)
    template_fit = fit.copy()
    admit(template_fit, template)
    return template_fit.check(template)


def _options(
    pods: Sequence[Pod],
    usable: Sequence[NodeGroup],
    fitting: Mapping[str, Sequence[PodGroup]],
    scale_up_input: ScaleUpInput,
    all_or_nothing: bool,
) -> list[Option]:
    settings = scale_up_input.settings
    options: list[Option] = []
    estimates: dict[Hashable, ScaleUpEstimate] = {}
    total = EstimationLimiter([Threshold(duration_s=settings.max_binpacking_s)])
    for group in usable:
        if not fitting[group.id]:
            continue
        if options and not total.permit():
            break
        similar = tuple(similar_groups(group, usable, fitting, scale_up_input))
        context = EstimationContext(similar, settings.max_nodes_total, scale_up_input.node_count)
        limiter = EstimationLimiter(
            (
                Threshold(settings.max_nodes_per_scale_up, settings.max_group_binpacking_s),
                similar_groups_threshold(group, context),
                cluster_threshold(context),
            )
        )
        key = _estimate_key(
            fitting[group.id], scale_up_input.templates[group.id], scale_up_input.snapshot, limiter.max_nodes
        )
        needed = estimates.get(key) if key is not None else None
        if needed is None:
            needed = estimate(fitting[group.id], scale_up_input.templates[group.id], scale_up_input.snapshot, limiter)
            if key is not None:
                estimates[key] = needed
        count = needed.nodes
        if group.options.zero_or_max and count > 0:
            count = 0 if all_or_nothing and count > group.max_size else group.max_size
        if not needed.pods or count == 0 or (all_or_nothing and len(needed.pods) < len(pods)):
            continue
        options.append(Option(group, count, needed.pods, similar))
    return options


def _estimate_key(
    pod_groups: Sequence[PodGroup], template: NodeInfo, snapshot: ClusterSnapshot, max_nodes: int
) -> Hashable | None:
    """What an estimate depends on, where no pod minds other pods: groups alike in it need not be packed again."""
    if not all(snapshot.fit(snapshot.info(pod_group.exemplar)).plain for pod_group in pod_groups):
        return None
    return (
        tuple(id(pod_group) for pod_group in pod_groups),
        tuple(sorted(template.allocatable.items())),
        tuple(sorted(template.requested.items())),
        frozenset(template.ports),
        len(template.pods),
        max_nodes,
    )


def similar_groups(
    group: NodeGroup,
    usable: Sequence[NodeGroup],
    fitting: Mapping[str, Sequence[PodGroup]],
    scale_up_input: ScaleUpInput,
) -> list[NodeGroup]:
    """Groups that may grow, have interchangeable nodes and take the same pods."""
    if not scale_up_input.settings.balance_similar or group.options.zero_or_max:
        return []
    pod_group_ids = {id(pod_group) for pod_group in fitting[group.id]}
    template = scale_up_input.templates[group.id]
    return [
        other
        for other in usable
        if other.id != group.id
        and scale_up_input.comparator(template, scale_up_input.templates[other.id])
        and pod_group_ids <= {id(pod_group) for pod_group in fitting[other.id]}
    ]


def _capped(count: int, scale_up_input: ScaleUpInput) -> tuple[int, bool]:
    most = scale_up_input.settings.max_nodes_total
    if most > 0 and count + scale_up_input.node_count > most:
        return most - scale_up_input.node_count, True
    return count, False


def _shares(best: Option, count: int, scale_up_input: ScaleUpInput) -> list[Increase]:
    """The nodes split over similar groups, each cut to what the quotas leave."""
    able = [
        group
        for group in best.similar
        if not scale_up_input.quotas.check(scale_up_input.templates[group.id].node, 1).exceeded
    ]
    shares: list[Increase] = []
    for share in balance([best.group, *able], count):
        node = scale_up_input.templates[share.group.id].node
        allowed = scale_up_input.quotas.check(node, share.delta).allowed
        if allowed <= 0:
            continue
        scale_up_input.quotas.consume(node, allowed)
        shares.append(Increase(share.group, share.current_size, share.current_size + allowed, share.max_size))
    return shares


def plan_minimum_sizes(scale_up_input: ScaleUpInput) -> list[Increase]:
    """Groups below their minimum, brought up to it."""
    increases: list[Increase] = []
    for group in scale_up_input.groups:
        if not group.exists or group.target_size >= group.min_size or scale_up_input.blocked(group) is not None:
            continue
        template = scale_up_input.templates.get(group.id)
        if template is None:
            continue
        count, _ = _capped(group.min_size - group.target_size, scale_up_input)
        allowed = scale_up_input.quotas.check(template.node, count).allowed if count > 0 else 0
        if allowed > 0:
            scale_up_input.quotas.consume(template.node, allowed)
            size = group.target_size
            increases.append(Increase(group, size, size + allowed, group.max_size))
    return increases
