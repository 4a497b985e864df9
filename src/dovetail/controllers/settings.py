"""Settings, by Karpenter's flags and environment names, so that an installation keeps its values.

A flag `--batch-idle-duration` is the variable `BATCH_IDLE_DURATION`; the flag wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import msgspec

from dovetail.controllers.inert_settings import WITHOUT_EFFECT, Inert, refusals, without_effect
from dovetail.language import message
from dovetail.model.duration import parse as parse_duration
from dovetail.model.scheduler_config import SchedulerConfigError, default_constraints


class BindingMode(StrEnum):
    """How pods get to the nodes planned for them: we bind them, we nominate, or we leave it to the scheduler."""

    BIND = "bind"
    NOMINATE = "nominate"
    OFF = "off"


GATES: Mapping[str, bool] = {
    "NodeRepair": False,
    "ReservedCapacity": True,
    "SpotToSpotConsolidation": False,
    "NodeOverlay": False,
    "StaticCapacity": False,
    "CapacityBuffer": False,
    "TerminateFirstDrift": False,
    "TerminateFirstRepair": False,
    "PodDeletionCostManagement": False,
}


#: The beginning of the help of a setting that an installation of Karpenter may carry and that changes nothing here.
UNREAD = "No effect here: "


def _without_effect_text(name: str) -> str:
    return f"{UNREAD}{WITHOUT_EFFECT[name]}."


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are seconds. Names are those of the flags; beside each type stands what the flag is for."""

    cluster_name: Annotated[str, "Name of the EKS cluster."] = ""
    cluster_endpoint: Annotated[str, "Address of the API server for nodes; EKS is asked if left out."] = ""
    cluster_ca_bundle: Annotated[str, "CA of the API server, in base64; EKS is asked if left out."] = ""
    default_instance_profile: Annotated[str, "Instance profile of AWSNodeTemplates that name none."] = ""
    isolated_vpc: Annotated[bool, "IAM and the price list are out of reach: packaged prices stand."] = False
    eks_control_plane: Annotated[bool, "Take the Kubernetes version from EKS rather than from the API server."] = False
    assume_role_arn: Annotated[str, "IAM role to assume for every call to AWS."] = ""
    assume_role_duration: Annotated[float, "How long the assumed role's credentials live."] = 900.0
    aws_tags: Annotated[Mapping[str, str], "Tags of all that is made in AWS: a JSON object, or team=shop,env=prod."] = (
        msgspec.field(default_factory=dict)
    )
    ec2_share: Annotated[float, "Share of EC2's request limits to stay below; 0 sets no limit of our own."] = 0.5
    vm_memory_overhead_percent: Annotated[float, "Share of memory that the hypervisor keeps."] = 0.075
    interruption_queue: Annotated[str, "SQS queue of spot interruptions and health events."] = ""
    reserved_enis: Annotated[int, "Network interfaces of an instance that pods get no addresses from."] = 0
    disable_dry_run: Annotated[bool, "Do not try launches of an EC2NodeClass by dry runs."] = False
    enable_zonal_shift: Annotated[bool, "Follow zonal shifts; true is refused, see docs/running.md."] = False
    ami_refresh_interval: Annotated[float, "How often images are looked for."] = 60.0
    subnet_refresh_interval: Annotated[float, "How often subnets are looked for."] = 60.0

    karpenter_service: Annotated[str, _without_effect_text("karpenter_service")] = ""
    metrics_port: Annotated[int, "Port of /metrics."] = 8080
    health_probe_port: Annotated[int, "Port of /healthz and /readyz."] = 8081
    kube_client_qps: Annotated[int, "Requests a second to the API server."] = 200
    kube_client_burst: Annotated[int, "Requests at once to the API server."] = 300
    enable_profiling: Annotated[bool, "Serve a task dump and a memory profile on the loopback address."] = False
    profiling_port: Annotated[int, "Port of /debug/tasks and /debug/memory, with --enable-profiling."] = 6060
    disable_controller_warmup: Annotated[bool, _without_effect_text("disable_controller_warmup")] = True
    disable_leader_election: Annotated[bool, "Act without a lease: only where one process runs."] = False
    disable_cluster_state_observability: Annotated[
        bool, "Leave out the metrics of each node, pod, NodePool and condition."
    ] = False
    leader_election_name: Annotated[str, "Name of the lease."] = "karpenter-leader-election"
    leader_election_namespace: Annotated[
        str, "Namespace of the lease and of the history; the pod's own if left out, kube-system outside a cluster."
    ] = ""
    system_namespace: Annotated[str, "The pod's own namespace, where its service account does not say it."] = ""
    memory_limit: Annotated[int, "Memory limit of the container in bytes; collects garbage from 90 % of it on."] = -1
    cpu_requests: Annotated[int, _without_effect_text("cpu_requests")] = 1000
    log_level: Annotated[str, "debug, info, warn or error."] = "info"
    log_encoding: Annotated[str, "Form of log lines: json or console."] = "json"
    log_output_paths: Annotated[str, "Where log lines go: stdout, stderr, files; comma-separated."] = "stdout"
    log_error_output_paths: Annotated[str, "Where lines go that cannot be written there."] = "stderr"
    batch_max_duration: Annotated[float, "The longest that pods are gathered before a plan is made."] = 10.0
    batch_idle_duration: Annotated[float, "A plan is made when no pod has come for so long."] = 1.0
    preference_policy: Annotated[str, "Respect or Ignore what pods prefer."] = "Respect"
    min_values_policy: Annotated[str, "Strict or BestEffort about minValues."] = "Strict"
    ignore_dra_requests: Annotated[bool, _without_effect_text("ignore_dra_requests")] = True
    kubernetes_min_version: Annotated[str, _without_effect_text("kubernetes_min_version")] = ""
    disable_webhook: Annotated[bool, _without_effect_text("disable_webhook")] = True
    webhook_port: Annotated[int, _without_effect_text("webhook_port")] = 8443
    webhook_metrics_port: Annotated[int, _without_effect_text("webhook_metrics_port")] = 8001
    aws_feature_gates: Annotated[str, _without_effect_text("aws_feature_gates")] = ""
    scheduler_config: Annotated[str, "Default spread constraints of the scheduler, as a document."] = ""
    legacy_node_repair: Annotated[bool, "Delete unhealthy nodes at once, without replacements and budgets."] = False
    feature_gates: Annotated[Mapping[str, bool], "Gates to open or shut, as NodeRepair=true,StaticCapacity=true."] = (
        msgspec.field(default_factory=lambda: dict(GATES))
    )

    place: Annotated[BindingMode, "How pods get to their nodes: bind, nominate or off."] = BindingMode.BIND
    place_schedulers: Annotated[str, "Schedulers whose pods are bound; pods of others are left to them."] = (
        "default-scheduler"
    )
    plan_deadline: Annotated[float, "Time to improve the quick plan in; 0 takes the quick plan."] = 1.0
    launch_timeout: Annotated[float, "A NodeClaim without an instance is deleted after so long."] = 300.0
    registration_timeout: Annotated[float, "A NodeClaim whose node has not joined is deleted after so long."] = 900.0
    history: Annotated[str, "File of past decisions; ConfigMaps in the lease's namespace if left out."] = ""
    dry_run: Annotated[bool, "Plan and record beside another autoscaler; write nothing to Kubernetes or AWS."] = False

    def gate(self, name: str) -> bool:
        return self.feature_gates.get(name, False)

    def without_effect(self) -> list[Inert]:
        """What was set and changes nothing, to be named at start."""
        return without_effect(msgspec.structs.asdict(self), msgspec.structs.asdict(Settings()))


class SettingsError(ValueError):
    """The flag, the value, and what would be right."""


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "log_level": ("debug", "info", "warn", "error"),
    "log_encoding": ("json", "console"),
    "preference_policy": ("Respect", "Ignore"),
    "min_values_policy": ("Strict", "BestEffort"),
    "place": tuple(BindingMode),
}
_DURATIONS = frozenset(
    {
        "assume_role_duration",
        "ami_refresh_interval",
        "subnet_refresh_interval",
        "batch_max_duration",
        "batch_idle_duration",
        "plan_deadline",
        "launch_timeout",
        "registration_timeout",
    }
)


#: Prefixes of tag keys that only the autoscaler, or AWS, may write.
_OWN_TAGS = (
    "aws:",
    "eks:eks-cluster-name",
    "karpenter.sh/",
    "karpenter.k8s.aws/",
    "kubernetes.io/cluster",
    "dovetail.sh/",
)

#: The least and the most that a number may be.
_RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(sorted(_DURATIONS), (0.0, math.inf)),
    "vm_memory_overhead_percent": (0.0, 1.0),
    "ec2_share": (0.0, 1.0),
    "assume_role_duration": (900.0, 43200.0),
    "reserved_enis": (0.0, math.inf),
    "metrics_port": (0.0, 65535.0),
    "health_probe_port": (0.0, 65535.0),
    "profiling_port": (1.0, 65535.0),
    "kube_client_qps": (1.0, math.inf),
    "kube_client_burst": (1.0, math.inf),
}


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def is_switch(field: str) -> bool:
    """Whether a setting is true or false."""
    return get_type_hints(Settings)[field] is bool


def meanings() -> dict[str, str]:
    """What each setting is for, with its variable and its default, in the order they are listed."""
    defaults = Settings()
    meanings = {}
    for name, kind in get_type_hints(Settings, include_extras=True).items():
        default = getattr(defaults, name)
        if name == "feature_gates":
            default = ",".join(gate for gate, on in default.items() if on)
        elif name == "aws_tags":
            default = ""
        elif name in _DURATIONS:
            default = f"{default:g}s"
        elif isinstance(default, bool):
            default = str(default).lower()
        shown = "" if default == "" else f"; {default}"
        meanings[name] = f"{kind.__metadata__[0]}  [{name.upper()}{shown}]"
    return meanings


def read(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Settings from flags (by field name) over environment over defaults."""
    values: dict[str, Any] = {}
    for name, kind in get_type_hints(Settings).items():
        text = flags.get(name)
        if text is None:
            text = environment.get(name.upper())
        if text is not None and text != "":
            values[name] = _value(name, text, kind)
    settings = Settings(**values)
    _check(settings)
    return settings


def _value(name: str, text: str, kind: Any) -> Any:
    try:
        if name == "feature_gates":
            return read_gates(text)
        if name == "aws_tags":
            return read_tags(text)
        if name in _CHOICES:
            return _choice(name, text)
        if name in _DURATIONS:
            return _seconds(text)
        if kind is bool:
            return _parse_bool(text)
        return _number(text, kind) if kind in (int, float) else text
    except ValueError as problem:
        raise SettingsError(f"{flag(name)}: {problem}") from problem


def _choice(name: str, text: str) -> str:
    if text not in _CHOICES[name]:
        raise ValueError(f"{text!r} is none of {', '.join(_CHOICES[name])}")
    return BindingMode(text) if name == "place" else text


def _seconds(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdigit() else parse_duration(text).total_seconds()


def _number(text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {'whole number' if kind is int else 'number'}") from None


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "t", "true"):
        return True
    if lowered in ("0", "f", "false"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def unknown_gates(text: str) -> list[str]:
    """Names in `A=true,B=false` that are no gates of ours; Karpenter accepts them silently."""
    names = [pair.partition("=")[0].strip() for pair in text.split(",") if pair.strip()]
    return [name for name in names if name not in GATES]


def read_gates(text: str) -> Mapping[str, bool]:
    """`A=true,B=false` over the defaults; unknown names are left alone, as upstream does."""
    gates = dict(GATES)
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"{pair!r} is not Name=true or Name=false")
        if name.strip() in gates:
            gates[name.strip()] = _parse_bool(value.strip())
    return gates


def read_tags(text: str) -> Mapping[str, str]:
    """A JSON object, as Karpenter's `settings.aws.tags`, or `key=value` separated by commas."""
    if text.lstrip().startswith("{"):
        try:
            tags = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError as problem:
            raise ValueError(f"{text!r} is not a JSON object of texts: {problem}") from problem
    else:
        pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
        if bad := [pair for pair in pairs if "=" not in pair]:
            raise ValueError(f"{bad[0]!r} is not key=value")
        tags = {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs)}
    for key in tags:
        if not key or key.startswith(_OWN_TAGS):
            raise ValueError(f"the tag {key!r} is written by the autoscaler; choose another key")
    return tags


def _check(settings: Settings) -> None:
    for inert in refusals(msgspec.structs.asdict(settings)):
        raise SettingsError(
            message(
                "{flag}: {value} cannot be honoured: {reason}",
                flag=flag(inert.setting),
                value=inert.value,
                reason=inert.reason,
            )
        )
    try:
        default_constraints(settings.scheduler_config)
    except SchedulerConfigError as problem:
        raise SettingsError(f"--scheduler-config: {problem}") from problem
    if settings.batch_idle_duration > settings.batch_max_duration:
        raise SettingsError(
            message("--batch-idle-duration: is longer than --batch-max-duration, which would never be reached")
        )
    for name, (least, most) in _RANGES.items():
        value = getattr(settings, name)
        if not least <= value <= most:
            raise SettingsError(
                message("{flag}: {value:g} is not at least {least:g}", flag=flag(name), value=value, least=least)
                if most == math.inf
                else message(
                    "{flag}: {value:g} is not from {least:g} to {most:g}",
                    flag=flag(name),
                    value=value,
                    least=least,
                    most=most,
                )
            )
