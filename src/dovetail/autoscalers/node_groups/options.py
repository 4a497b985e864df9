"""What the flags mean for the parts of the program."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.autoscalers.node_groups.actuation import ActuationSettings
from dovetail.autoscalers.node_groups.annotations import STARTUP_TAINT_PREFIXES
from dovetail.autoscalers.node_groups.backoff import BackoffTimes
from dovetail.autoscalers.node_groups.cluster_state import HealthLimits
from dovetail.autoscalers.node_groups.cooldown import Delays
from dovetail.autoscalers.node_groups.drain import DrainRules
from dovetail.autoscalers.node_groups.eligibility import EligibilityRules
from dovetail.autoscalers.node_groups.flags import ParsedFlags
from dovetail.autoscalers.node_groups.quotas import Range
from dovetail.autoscalers.node_groups.request_controller import RequestBackoff
from dovetail.autoscalers.node_groups.scale_down import ScaleDownSettings
from dovetail.autoscalers.node_groups.scale_up import ScaleUpSettings
from dovetail.autoscalers.node_groups.similarity import (
    Comparator,
    DifferenceRatios,
    aws_comparator,
    label_comparator,
)
from dovetail.autoscalers.node_groups.soft_taints import SoftTaintLimits
from dovetail.autoscalers.node_groups.templates import TaintConfig
from dovetail.cloud.aws.auto_scaling_groups import GroupDiscovery
from dovetail.cloud.aws.group_tags import parse_discovery, parse_nodes_flag
from dovetail.cloud.node_groups import GroupOptions


class AutoscalingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Made of the flags once, at the start."""

    namespace: str
    #: None where ProvisioningRequests are off.
    requests: RequestBackoff | None
    scan_interval_s: float
    frequent_loops: bool
    scale_up_from_zero: bool
    expanders: tuple[str, ...]
    limits: Mapping[str, Range]
    enforce_min_size: bool
    expendable_cutoff: int
    new_pod_delay_s: float
    bypassed_schedulers: frozenset[str]
    allowed_schedulers: frozenset[str]
    template_life_s: float
    force_daemonsets: bool
    candidate_life_s: float
    scale_down_enabled: bool
    delays: Delays
    soft_taints: SoftTaintLimits
    taints: TaintConfig
    health: HealthLimits
    backoff: BackoffTimes
    scale_up: ScaleUpSettings
    scale_down: ScaleDownSettings
    actuation: ActuationSettings
    comparator: Comparator


def group_options(settings: ParsedFlags) -> GroupOptions:
    """The defaults of options that a group's tags may change."""
    return GroupOptions(
        scale_down_utilization_threshold=settings["scale-down-utilization-threshold"],
        scale_down_gpu_utilization_threshold=settings["scale-down-gpu-utilization-threshold"],
        scale_down_unneeded_s=settings["scale-down-unneeded-time"],
        scale_down_unready_s=settings["scale-down-unready-time"],
        max_node_provision_s=settings["max-node-provision-time"],
        max_node_startup_s=settings["max-node-startup-time"],
        ignore_daemonsets_utilization=settings["ignore-daemonsets-utilization"],
    )


def discovery(settings: ParsedFlags) -> GroupDiscovery:
    """Which groups are under control. Raises SpecError."""
    return GroupDiscovery(
        named=tuple(parse_nodes_flag(text) for text in settings["nodes"]),
        tags=tuple(parse_discovery(text) for text in settings["node-group-auto-discovery"]),
    )


def options(settings: ParsedFlags) -> AutoscalingOptions:
    """What the loop is configured with, by its flags."""
    return AutoscalingOptions(
        namespace=settings["namespace"],
        requests=_request_backoff(settings),
        scan_interval_s=settings["scan-interval"],
        frequent_loops=settings["frequent-loops-enabled"],
        scale_up_from_zero=settings["scale-up-from-zero"],
        expanders=settings.chain(),
        limits=settings.limits(),
        enforce_min_size=settings["enforce-node-group-min-size"],
        expendable_cutoff=settings["expendable-pods-priority-cutoff"],
        new_pod_delay_s=settings["new-pod-scale-up-delay"],
        bypassed_schedulers=_names(settings["bypassed-scheduler-names"]),
        allowed_schedulers=_names(settings["allowed-scheduler-names"]),
        template_life_s=settings["node-info-cache-expire-time"],
        force_daemonsets=settings["force-ds"],
        candidate_life_s=settings["node-deletion-candidate-ttl"],
        scale_down_enabled=settings["scale-down-enabled"],
        delays=Delays(
            after_add_s=settings["scale-down-delay-after-add"],
            after_delete_s=settings["scale-down-delay-after-delete"],
            after_failure_s=settings["scale-down-delay-after-failure"],
            local=settings["scale-down-delay-type-local"],
        ),
        soft_taints=SoftTaintLimits(settings["max-bulk-soft-taint-count"], settings["max-bulk-soft-taint-time"]),
        taints=TaintConfig(
            startup=frozenset((*settings["startup-taint"], *settings["ignore-taint"])),
            startup_prefixes=(*STARTUP_TAINT_PREFIXES, *settings["startup-taint-prefix"]),
            status=frozenset(settings["status-taint"]),
        ),
        health=HealthLimits(settings["max-total-unready-percentage"], settings["ok-total-unready-count"]),
        backoff=BackoffTimes(
            settings["initial-node-group-backoff-duration"],
            settings["max-node-group-backoff-duration"],
            settings["node-group-backoff-reset-timeout"],
        ),
        scale_up=_scale_up(settings),
        scale_down=_scale_down(settings),
        actuation=_actuation(settings),
        comparator=_comparator(settings),
    )


def _scale_up(settings: ParsedFlags) -> ScaleUpSettings:
    return ScaleUpSettings(
        max_nodes_total=settings["max-nodes-total"],
        max_nodes_per_scale_up=settings["max-nodes-per-scaleup"],
        max_group_binpacking_s=settings["max-nodegroup-binpacking-duration"],
        max_binpacking_s=settings["max-binpacking-time"],
        balance_similar=settings["balance-similar-node-groups"],
    )


def _scale_down(settings: ParsedFlags) -> ScaleDownSettings:
    return ScaleDownSettings(
        unneeded_s=settings["scale-down-unneeded-time"],
        max_parallelism=settings["max-scale-down-parallelism"],
        simulation_timeout_s=settings["scale-down-simulation-timeout"],
        unremovable_recheck_s=settings["unremovable-node-recheck-timeout"],
        eligibility=EligibilityRules(
            settings["scale-down-unready-enabled"], settings["ignore-mirror-pods-utilization"]
        ),
        drain=_drain_rules(settings),
    )


def _actuation(settings: ParsedFlags) -> ActuationSettings:
    return ActuationSettings(
        max_parallelism=settings["max-scale-down-parallelism"],
        max_drain_parallelism=settings["max-drain-parallelism"],
        delay_after_taint_s=settings["node-delete-delay-after-taint"],
        max_graceful_termination_s=float(settings["max-graceful-termination-sec"]),
        max_pod_eviction_s=settings["max-pod-eviction-time"],
        deletion_delay_timeout_s=settings["node-deletion-delay-timeout"],
        cordon=settings["cordon-node-before-terminating"],
        daemonset_eviction_empty=settings["daemonset-eviction-for-empty-nodes"],
        daemonset_eviction_occupied=settings["daemonset-eviction-for-occupied-nodes"],
        expendable_cutoff=settings["expendable-pods-priority-cutoff"],
        drain=_drain_rules(settings),
    )


def _drain_rules(settings: ParsedFlags) -> DrainRules:
    return DrainRules(
        skip_system_pods=settings["skip-nodes-with-system-pods"],
        skip_local_storage=settings["skip-nodes-with-local-storage"],
        skip_custom_controller_pods=settings["skip-nodes-with-custom-controller-pods"],
        min_replica_count=settings["min-replica-count"],
        system_pod_timeout_s=settings["blocking-system-pod-distruption-timeout"],
    )


def _request_backoff(settings: ParsedFlags) -> RequestBackoff | None:
    if not settings["enable-provisioning-requests"]:
        return None
    return RequestBackoff(
        settings["provisioning-request-initial-backoff-time"], settings["provisioning-request-max-backoff-time"]
    )


def _comparator(settings: ParsedFlags) -> Comparator:
    if settings["balancing-label"]:
        return label_comparator(settings["balancing-label"])
    ratios = DifferenceRatios(
        settings["memory-difference-ratio"],
        settings["max-allocatable-difference-ratio"],
        settings["max-free-difference-ratio"],
    )
    return aws_comparator(settings["balancing-ignore-label"], ratios)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
