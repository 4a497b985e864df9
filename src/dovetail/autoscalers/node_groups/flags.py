"""Cluster Autoscaler's flags: their names, defaults and kinds, read as Go programs read them.

`--flag=value`, `--flag value` and one dash instead of two are the same. A boolean takes its value only after `=`.
A flag that is not known is refused with the nearest name; one that is known and does nothing here is named at start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.autoscalers.go_flags import FlagError, assignments, boolean, finite, listen_address
from dovetail.autoscalers.node_groups.expanders import ExpanderError, parse_chain
from dovetail.autoscalers.node_groups.quotas import GIB, Range
from dovetail.kube.lease import LeaseTimes
from dovetail.language import message, source, translated
from dovetail.model import duration
from dovetail.model.duration import DurationError

BOOL, INT, FLOAT, DURATION, TEXT, LIST = "bool", "int", "float", "duration", "text", "list"


class ProgramFlag(msgspec.Struct, frozen=True):
    """`without_effect` says why the flag changes nothing here."""

    kind: str
    default: Any
    without_effect: str = ""


def _off(kind: str, default: Any, why: str = "this program has no such part") -> ProgramFlag:
    return ProgramFlag(kind, default, why)


_LOG = "the log goes to the standard error, one line a message"
_REMOVED = "removed upstream"
_OTHER_CLOUD = "it is of another cloud"
FLAGS: Mapping[str, ProgramFlag] = {
    # The program
    "cloud-provider": ProgramFlag(TEXT, "aws"),
    "cloud-config": ProgramFlag(TEXT, ""),
    "kubeconfig": ProgramFlag(TEXT, ""),
    "kubernetes": _off(TEXT, "", "the API server is found by --kubeconfig, or from within the cluster"),
    "namespace": ProgramFlag(TEXT, "kube-system"),
    "cluster-name": _off(TEXT, "", "groups are found by --nodes and --node-group-auto-discovery"),
    "address": ProgramFlag(TEXT, ":8085"),
    "v": ProgramFlag(INT, 0),
    "user-agent": ProgramFlag(TEXT, "cluster-autoscaler"),
    "scan-interval": ProgramFlag(DURATION, 10.0),
    "frequent-loops-enabled": ProgramFlag(BOOL, True),
    "max-inactivity": ProgramFlag(DURATION, 600.0),
    "max-failing-time": ProgramFlag(DURATION, 900.0),
    "max-startup-time": _off(DURATION, 1200.0, "the first loop counts as any other"),
    "kube-client-qps": ProgramFlag(FLOAT, 5.0),
    "kube-client-burst": ProgramFlag(INT, 10),
    "kube-api-content-type": _off(TEXT, "application/vnd.kubernetes.protobuf", "requests are JSON"),
    "profiling": _off(BOOL, False),
    "feature-gates": _off(TEXT, ""),
    "emit-per-nodegroup-metrics": ProgramFlag(BOOL, False),
    "record-duplicated-events": ProgramFlag(BOOL, False),
    "debugging-snapshot-enabled": _off(BOOL, False, "dovetail explain tells the same"),
    "predicate-parallelism": _off(INT, 4, "simulation runs in one thread"),
    "cluster-snapshot-parallelism": _off(INT, 16, "simulation runs in one thread"),
    "scheduler-verbosity": _off(INT, 0),
    "scheduler-config-file": _off(TEXT, "", "the fit rules are those of the default scheduler"),
    "leader-elect": ProgramFlag(BOOL, True),
    "leader-elect-lease-duration": ProgramFlag(DURATION, 15.0),
    "leader-elect-renew-deadline": ProgramFlag(DURATION, 10.0),
    "leader-elect-retry-period": ProgramFlag(DURATION, 2.0),
    "leader-elect-resource-lock": _off(TEXT, "leases", "the lock is a Lease"),
    "leader-elect-resource-name": ProgramFlag(TEXT, "cluster-autoscaler"),
    "leader-elect-resource-namespace": ProgramFlag(TEXT, ""),
    # Sizes
    "nodes": ProgramFlag(LIST, ()),
    "node-group-auto-discovery": ProgramFlag(LIST, ()),
    "max-nodes-total": ProgramFlag(INT, 0),
    "cores-total": ProgramFlag(TEXT, "0:320000"),
    "memory-total": ProgramFlag(TEXT, "0:6400000"),
    "gpu-total": ProgramFlag(LIST, ()),
    "enforce-node-group-min-size": ProgramFlag(BOOL, False),
    "capacity-quotas-enabled": _off(BOOL, False),
    # Growing
    "estimator": ProgramFlag(TEXT, "binpacking"),
    "expander": ProgramFlag(TEXT, "least-waste"),
    "grpc-expander-url": _off(TEXT, "", "there is no gRPC client here; --expander=grpc is refused"),
    "grpc-expander-cert": _off(TEXT, "", "there is no gRPC client here; --expander=grpc is refused"),
    "max-nodes-per-scaleup": ProgramFlag(INT, 1000),
    "max-nodegroup-binpacking-duration": ProgramFlag(DURATION, 10.0),
    "max-binpacking-time": ProgramFlag(DURATION, 300.0),
    "new-pod-scale-up-delay": ProgramFlag(DURATION, 0.0),
    "expendable-pods-priority-cutoff": ProgramFlag(INT, -10),
    "scale-up-from-zero": ProgramFlag(BOOL, True),
    "parallel-scale-up": _off(BOOL, False, "groups are resized one after another"),
    "balance-similar-node-groups": ProgramFlag(BOOL, False),
    "balancing-ignore-label": ProgramFlag(LIST, ()),
    "balancing-label": ProgramFlag(LIST, ()),
    "memory-difference-ratio": ProgramFlag(FLOAT, 0.015),
    "max-free-difference-ratio": ProgramFlag(FLOAT, 0.05),
    "max-allocatable-difference-ratio": ProgramFlag(FLOAT, 0.05),
    "max-node-provision-time": ProgramFlag(DURATION, 900.0),
    "max-node-startup-time": ProgramFlag(DURATION, 900.0),
    "initial-node-group-backoff-duration": ProgramFlag(DURATION, 300.0),
    "max-node-group-backoff-duration": ProgramFlag(DURATION, 1800.0),
    "node-group-backoff-reset-timeout": ProgramFlag(DURATION, 10800.0),
    "max-total-unready-percentage": ProgramFlag(FLOAT, 45.0),
    "ok-total-unready-count": ProgramFlag(INT, 3),
    "force-ds": ProgramFlag(BOOL, False),
    "fastpath-binpacking-enabled": _off(BOOL, False),
    "salvo-scale-up": _off(BOOL, False),
    "salvo-scale-up-budget": _off(DURATION, 60.0),
    "async-node-groups": _off(BOOL, False),
    "enable-proactive-scaleup": _off(BOOL, False),
    "pod-injection-limit": _off(INT, 5000),
    "node-info-cache-expire-time": ProgramFlag(DURATION, 315360000.0),
    "startup-taint": ProgramFlag(LIST, ()),
    "startup-taint-prefix": ProgramFlag(LIST, ()),
    "status-taint": ProgramFlag(LIST, ()),
    "ignore-taint": ProgramFlag(LIST, ()),
    "bypassed-scheduler-names": ProgramFlag(TEXT, ""),
    "allowed-scheduler-names": ProgramFlag(TEXT, ""),
    "enable-dynamic-resource-allocation": _off(BOOL, True, "pods with resource claims are not simulated"),
    "enable-csi-node-aware-scheduling": _off(BOOL, False),
    "pending-pods-batching-timeout": _off(DURATION, 240.0),
    "enable-graceful-degradation": _off(BOOL, False),
    "scaleup-simulation-for-skipped-node-groups-enabled": _off(BOOL, False),
    "enable-inter-pod-affinity-hostname-fast-path": _off(BOOL, False),
    "scale-from-unschedulable": _off(BOOL, False, "templates are never cordoned"),
    "unready-nodes-scope": _off(TEXT, "cluster"),
    # Shrinking
    "scale-down-enabled": ProgramFlag(BOOL, True),
    "scale-down-delay-after-add": ProgramFlag(DURATION, 600.0),
    "scale-down-delay-after-delete": ProgramFlag(DURATION, 0.0),
    "scale-down-delay-after-failure": ProgramFlag(DURATION, 180.0),
    "scale-down-delay-type-local": ProgramFlag(BOOL, False),
    "scale-down-unneeded-time": ProgramFlag(DURATION, 600.0),
    "scale-down-unready-enabled": ProgramFlag(BOOL, True),
    "scale-down-unready-time": ProgramFlag(DURATION, 1200.0),
    "scale-down-utilization-threshold": ProgramFlag(FLOAT, 0.5),
    "scale-down-gpu-utilization-threshold": ProgramFlag(FLOAT, 0.5),
    "scale-down-non-empty-candidates-count": _off(INT, 30, "every node is a candidate"),
    "scale-down-candidates-pool-ratio": _off(FLOAT, 0.1, "every node is a candidate"),
    "scale-down-candidates-pool-min-count": _off(INT, 50, "every node is a candidate"),
    "scale-down-simulation-timeout": ProgramFlag(DURATION, 30.0),
    "unremovable-node-recheck-timeout": ProgramFlag(DURATION, 300.0),
    "max-scale-down-parallelism": ProgramFlag(INT, 10),
    "max-drain-parallelism": ProgramFlag(INT, 1),
    "max-graceful-termination-sec": ProgramFlag(INT, 600),
    "max-pod-eviction-time": ProgramFlag(DURATION, 120.0),
    "node-delete-delay-after-taint": ProgramFlag(DURATION, 5.0),
    "dynamic-node-delete-delay-after-taint-enabled": _off(BOOL, False),
    "node-deletion-delay-timeout": ProgramFlag(DURATION, 120.0),
    "node-deletion-batcher-interval": _off(DURATION, 0.0, "AWS ends instances one by one"),
    "node-deletion-candidate-ttl": ProgramFlag(DURATION, 0.0),
    "max-bulk-soft-taint-count": ProgramFlag(INT, 10),
    "max-bulk-soft-taint-time": ProgramFlag(DURATION, 3.0),
    "cordon-node-before-terminating": ProgramFlag(BOOL, True),
    "daemonset-eviction-for-occupied-nodes": ProgramFlag(BOOL, True),
    "daemonset-eviction-for-empty-nodes": ProgramFlag(BOOL, False),
    "ignore-daemonsets-utilization": ProgramFlag(BOOL, False),
    "ignore-mirror-pods-utilization": ProgramFlag(BOOL, False),
    "skip-nodes-with-system-pods": ProgramFlag(BOOL, True),
    "skip-nodes-with-local-storage": ProgramFlag(BOOL, True),
    "skip-nodes-with-custom-controller-pods": ProgramFlag(BOOL, True),
    "min-replica-count": ProgramFlag(INT, 0),
    "blocking-system-pod-distruption-timeout": ProgramFlag(DURATION, 3600.0),
    "drain-priority-config": _off(TEXT, "", "pods of a node are evicted together"),
    "force-delete-unregistered-nodes": _off(BOOL, False, "AWS has no forced deletion"),
    "force-delete-failed-nodes": _off(BOOL, False, "AWS has no forced deletion"),
    "node-removal-latency-tracking-enabled": _off(BOOL, False),
    "max-node-skip-eval-time-tracker-enabled": _off(BOOL, False),
    # What is shown
    "write-status-configmap": ProgramFlag(BOOL, True),
    "status-config-map-name": ProgramFlag(TEXT, "cluster-autoscaler-status"),
    "enable-provisioning-requests": ProgramFlag(BOOL, False),
    "provisioning-request-initial-backoff-time": ProgramFlag(DURATION, 60.0),
    "provisioning-request-max-backoff-time": ProgramFlag(DURATION, 600.0),
    "provisioning-request-max-backoff-cache-size": _off(INT, 1000, "every request that waits is remembered"),
    "check-capacity-batch-processing": _off(BOOL, False, "requests are answered one after another"),
    "check-capacity-provisioning-request-max-batch-size": _off(INT, 10, "requests are answered one after another"),
    "check-capacity-provisioning-request-batch-timebox": _off(DURATION, 10.0, "requests are answered one by one"),
    "check-capacity-processor-instance": _off(TEXT, ""),
    "capacity-buffer-controller-enabled": _off(BOOL, False),
    "capacity-buffer-pod-injection-enabled": _off(BOOL, False),
    "capacity-buffer-dry-run": _off(BOOL, True),
    "capacity-buffer-pod-dry-run-enabled": _off(BOOL, True),
    "capacity-buffer-ready-replicas-enabled": _off(BOOL, True),
    "aws-use-static-instance-list": ProgramFlag(BOOL, False),
    "clusterapi-cloud-config-authoritative": _off(BOOL, False, _OTHER_CLOUD),
    "bulk-mig-instances-listing-enabled": _off(BOOL, False, _OTHER_CLOUD),
    "gce-concurrent-refreshes": _off(INT, 1, _OTHER_CLOUD),
    "gce-mig-instances-min-refresh-wait-time": _off(DURATION, 5.0, _OTHER_CLOUD),
    "gce-expander-ephemeral-storage-support": _off(BOOL, False, _OTHER_CLOUD),
    # The log of Go programs
    "logtostderr": _off(BOOL, True, _LOG),
    "alsologtostderr": _off(BOOL, False, _LOG),
    "stderrthreshold": _off(TEXT, "2", _LOG),
    "log-dir": _off(TEXT, "", _LOG),
    "log-file": _off(TEXT, "", _LOG),
    "log-file-max-size": _off(INT, 1800, _LOG),
    "log-backtrace-at": _off(TEXT, "", _LOG),
    "logging-format": _off(TEXT, "text", _LOG),
    "log-flush-frequency": _off(DURATION, 5.0, _LOG),
    "log-json-info-buffer-size": _off(TEXT, "0", _LOG),
    "log-json-split-stream": _off(BOOL, False, _LOG),
    "log-text-info-buffer-size": _off(TEXT, "0", _LOG),
    "log-text-split-stream": _off(BOOL, False, _LOG),
    "vmodule": _off(TEXT, "", _LOG),
    "skip-headers": _off(BOOL, False, _LOG),
    "skip-log-headers": _off(BOOL, False, _LOG),
    "add-dir-header": _off(BOOL, False, _LOG),
    "one-output": _off(BOOL, False, _LOG),
    # Flags that manifests of older releases have
    "max-empty-bulk-delete": _off(INT, 10, f"{_REMOVED} in 1.33; use --max-scale-down-parallelism"),
    "max-autoprovisioned-node-group-count": _off(INT, 15, f"{_REMOVED}: groups are not created"),
    "node-autoprovisioning-enabled": _off(BOOL, False, f"{_REMOVED}: groups are not created"),
    "unremovable-node-recheck-time": _off(DURATION, 300.0, f"{_REMOVED}; use --unremovable-node-recheck-timeout"),
    "parallel-drain": _off(BOOL, True, f"{_REMOVED}: drains run beside each other"),
    "regional": _off(BOOL, False, f"{_REMOVED}: it is of another cloud"),
}


class ParsedFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Every flag with its value, and those that were set although they do nothing."""

    values: Mapping[str, Any]
    ineffective: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def chain(self) -> tuple[str, ...]:
        return parse_chain(self["expander"])

    def limits(self) -> dict[str, Range]:
        """The cluster-wide limits; memory in bytes."""
        limits = {
            "cpu": _range("cores-total", self["cores-total"], 1),
            "memory": _range("memory-total", self["memory-total"], GIB),
        }
        for text in self["gpu-total"]:
            kind, colon, numbers = text.partition(":")
            if not (kind and colon):
                raise FlagError(message("--gpu-total={text}: write it TYPE:MIN:MAX", text=text))
            limits[kind] = _range("gpu-total", numbers, 1, written=text)
        return limits

    def lease_times(self) -> LeaseTimes:
        """Raises ValueError where the durations do not fit together."""
        return LeaseTimes(
            self["leader-elect-lease-duration"],
            self["leader-elect-renew-deadline"],
            self["leader-elect-retry-period"],
        )

    def notices(self) -> list[str]:
        """One line for every flag that was set and changes nothing."""
        return [f"--{name} has no effect here: {FLAGS[name].without_effect}" for name in self.ineffective]


def parse(arguments: Sequence[str]) -> ParsedFlags:
    """Read the command line. Raises FlagError."""
    values: dict[str, Any] = {}
    for name, value in assignments(arguments, FLAGS, lambda name: FLAGS[name].kind == BOOL):
        flag = FLAGS[name]
        read = _read(name, flag.kind, value)
        values[name] = (*values.get(name, ()), read) if flag.kind == LIST else read
    settings = ParsedFlags(
        values={name: values.get(name, flag.default) for name, flag in FLAGS.items()},
        ineffective=tuple(name for name in values if FLAGS[name].without_effect),
    )
    _check(settings)
    return settings


def _read(name: str, kind: str, value: str) -> Any:
    try:
        match kind:
            case "bool":
                if (read := boolean(value)) is None:
                    raise ValueError(value)
                return read
            case "int":
                return int(value)
            case "float":
                return finite(value)
            case "duration":
                return duration.parse(value).total_seconds()
            case _:
                return value
    except DurationError:
        raise FlagError(
            message("--{name}={value}: it is no duration; write one such as 10s, 5m or 1h30m", name=name, value=value)
        ) from None
    except ValueError:
        meant = {"bool": message("true or false"), "int": message("a whole number"), "float": message("a number")}[kind]
        raise FlagError(message("--{name}={value}: it must be {meant}", name=name, value=value, meant=meant)) from None


def _check(settings: ParsedFlags) -> None:
    if settings["cloud-provider"] != "aws":
        raise FlagError(message("--cloud-provider={name}: only aws is supported", name=settings["cloud-provider"]))
    if settings["estimator"] != "binpacking":
        raise FlagError(message("--estimator={name}: the only one is binpacking", name=settings["estimator"]))
    try:
        settings.chain()
    except ExpanderError as problem:
        raise FlagError(str(problem)) from None
    if settings["balancing-label"] and settings["balancing-ignore-label"]:
        raise FlagError(message("--balancing-label and --balancing-ignore-label exclude each other; set one of them"))
    if settings["scan-interval"] <= 0:
        raise FlagError(message("--scan-interval must be above 0s"))
    for name in ("kube-client-qps", "kube-client-burst"):
        if settings[name] <= 0:
            raise FlagError(message("--{flag}: {value:g} has to be more than 0", flag=name, value=settings[name]))
    try:
        settings.lease_times()
    except ValueError as problem:
        raise FlagError(f"--leader-elect-lease-duration: {problem}") from None
    listen_address("address", settings["address"])
    settings.limits()


def _range(name: str, text: str, unit: int, *, written: str = "") -> Range:
    """The range of `text`, which stands in the flag as it was `written`."""
    shown = written or text
    least, _, most = text.partition(":")
    try:
        limits = Range(int(least) * unit, int(most) * unit)
    except ValueError:
        raise FlagError(message("--{name}={text}: write it MIN:MAX in whole numbers", name=name, text=shown)) from None
    if limits.least < 0 or limits.most < limits.least:
        raise FlagError(
            message(
                "--{name}={text}: the minimum must be 0 or more, the maximum at least the minimum",
                name=name,
                text=shown,
            )
        )
    return limits


_EXAMPLES = (
    "  dovetail cluster-autoscaler --nodes=1:10:my-group --expander=priority,least-waste",
    "  dovetail cluster-autoscaler --node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled",
)
_HELP: Mapping[str, str] = {
    "nodes": source("MIN:MAX:NAME of a group; may be given several times"),
    "node-group-auto-discovery": source("asg:tag=KEY,KEY=VALUE: groups that have all the tags, with their own bounds"),
    "expander": source(
        "which group grows: random, least-waste, most-pods, least-nodes, priority, price, or some in order"
    ),
    "balance-similar-node-groups": source("split a scale-up over groups with alike nodes"),
    "balancing-ignore-label": source("a label by which alike nodes may differ"),
    "balancing-label": source("nodes are alike if they agree in these labels alone"),
    "scan-interval": source("time between two loops"),
    "max-nodes-total": source("nodes of the whole cluster; 0 is no limit"),
    "cores-total": source("MIN:MAX cores of the whole cluster"),
    "memory-total": source("MIN:MAX GiB of the whole cluster"),
    "gpu-total": source("TYPE:MIN:MAX GPUs of the whole cluster"),
    "max-node-provision-time": source("an instance that is no node after this time is given up"),
    "new-pod-scale-up-delay": source("pods younger than this wait"),
    "expendable-pods-priority-cutoff": source("pods of lower priority neither trigger nodes nor keep them"),
    "enforce-node-group-min-size": source("bring groups up to their minimum"),
    "scale-up-from-zero": source("grow also while the cluster has no ready node"),
    "scale-down-enabled": source("remove nodes that are not needed"),
    "scale-down-delay-after-add": source("no removal for so long after a scale-up"),
    "scale-down-delay-after-delete": source("no removal for so long after a removal"),
    "scale-down-delay-after-failure": source("no removal for so long after a failed removal"),
    "scale-down-unneeded-time": source("a node is unneeded for so long before it goes"),
    "scale-down-unready-time": source("the same for a node that is not ready"),
    "scale-down-utilization-threshold": source("share of requests up to which a node may be unneeded"),
    "skip-nodes-with-system-pods": source("keep nodes of kube-system pods without a PodDisruptionBudget"),
    "skip-nodes-with-local-storage": source("keep nodes of pods with emptyDir or hostPath volumes"),
    "skip-nodes-with-custom-controller-pods": source("keep nodes of pods of controllers that are not built in"),
    "min-replica-count": source("keep nodes of ReplicaSets that ask for fewer replicas"),
    "ignore-daemonsets-utilization": source("leave DaemonSet pods out of a node's utilisation"),
    "max-scale-down-parallelism": source("nodes that are removed at once"),
    "max-drain-parallelism": source("of those, nodes that are drained at once"),
    "max-graceful-termination-sec": source("time that an evicted pod has to end"),
    "max-pod-eviction-time": source("time for which an eviction is tried"),
    "status-config-map-name": source("where the status is written"),
    "write-status-configmap": source("write the status"),
    "enable-provisioning-requests": source("serve ProvisioningRequests"),
    "leader-elect": source("run one of several replicas at a time"),
    "address": source("where metrics and the health check are served"),
    "cloud-config": source("a file of endpoints of AWS services"),
    "kubeconfig": source("the cluster; from within it none is needed"),
    "v": source("how much is logged; 4 tells every step"),
}


def help_text() -> str:
    """Every flag with its default: those with an effect first."""
    with_effect = [f"  {_shown(name, flag)}" for name, flag in sorted(FLAGS.items()) if not flag.without_effect]
    without = [
        f"  {_shown(name, flag)}  ({translated(flag.without_effect)})"
        for name, flag in sorted(FLAGS.items())
        if flag.without_effect
    ]
    about = message("Cluster Autoscaler on Auto Scaling groups and EKS managed node groups, with upstream's flags.")
    return "\n".join(
        [
            *(about, "", *_EXAMPLES, ""),
            *(message("Flags and their defaults:"), *with_effect, ""),
            *(message("Flags that have no effect here:"), *without),
        ]
    )


def _shown(name: str, flag: ProgramFlag) -> str:
    match flag.kind:
        case "list":
            text = ", ".join(flag.default)
        case "duration":
            text = duration.format_duration(timedelta(seconds=flag.default))
        case "bool":
            text = str(flag.default).lower()
        case _:
            text = str(flag.default)
    what = f"\n      {translated(_HELP[name])}" if name in _HELP else ""
    return f"--{name}={text}{what}"
