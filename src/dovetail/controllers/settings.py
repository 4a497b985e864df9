"""Settings, by Karpenter's flags and environment names, so that an installation keeps its values.

A flag `--batch-idle-duration` is the variable `BATCH_IDLE_DURATION`; the flag wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from dovetail.controllers.schedulerconfig import SchedulerConfigError, default_constraints
from dovetail.model.duration import parse as parse_duration


class Place(StrEnum):
    """How pods get to the machines planned for them: we bind them, we hint, or we leave it to the scheduler."""

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


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are seconds. Names are those of the flags."""

    cluster_name: str = ""
    cluster_endpoint: str = ""
    cluster_ca_bundle: str = ""
    isolated_vpc: bool = False
    eks_control_plane: bool = False
    vm_memory_overhead_percent: float = 0.075
    interruption_queue: str = ""
    reserved_enis: int = 0
    disable_dry_run: bool = False
    enable_zonal_shift: bool = False
    ami_refresh_interval: float = 60.0
    subnet_refresh_interval: float = 60.0

    karpenter_service: str = ""
    metrics_port: int = 8080
    health_probe_port: int = 8081
    kube_client_qps: int = 200
    kube_client_burst: int = 300
    enable_profiling: bool = False
    disable_controller_warmup: bool = True
    disable_leader_election: bool = False
    disable_cluster_state_observability: bool = False
    leader_election_name: str = "karpenter-leader-election"
    leader_election_namespace: str = ""
    memory_limit: int = -1
    cpu_requests: int = 1000
    log_level: str = "info"
    log_output_paths: str = "stdout"
    log_error_output_paths: str = "stderr"
    batch_max_duration: float = 10.0
    batch_idle_duration: float = 1.0
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    ignore_dra_requests: bool = True
    scheduler_config: str = ""
    legacy_node_repair: bool = False
    feature_gates: Mapping[str, bool] = msgspec.field(default_factory=lambda: dict(GATES))

    place: Place = Place.BIND
    plan_deadline: float = 1.0
    """Seconds the optimiser may use beyond the quick answer; 0 takes the quick answer."""
    launch_timeout: float = 300.0
    registration_timeout: float = 900.0
    history: str = ""
    """The ledger's file; empty keeps decisions in ConfigMaps of the controller's namespace."""

    def gate(self, name: str) -> bool:
        return self.feature_gates.get(name, False)


class SettingsError(ValueError):
    """The flag, the value, and what would be right."""


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "log_level": ("debug", "info", "error"),
    "preference_policy": ("Respect", "Ignore"),
    "min_values_policy": ("Strict", "BestEffort"),
    "place": tuple(Place),
}
_DURATIONS = frozenset(
    {
        "ami_refresh_interval",
        "subnet_refresh_interval",
        "batch_max_duration",
        "batch_idle_duration",
        "plan_deadline",
        "launch_timeout",
        "registration_timeout",
    }
)


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def read(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Settings from flags (by field name) over environment over defaults."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        text = flags.get(field.name)
        if text is None:
            text = environment.get(field.name.upper())
        if text is not None and text != "":
            values[field.name] = _value(field.name, text, field.type)
    settings = Settings(**values)
    _check(settings)
    return settings


def _value(name: str, text: str, kind: Any) -> Any:
    try:
        if name == "feature_gates":
            return _gates(text)
        if name in _CHOICES:
            return _choice(name, text)
        if name in _DURATIONS:
            return _seconds(text)
        if kind is bool:
            return _truth(text)
        return kind(text) if kind in (int, float) else text
    except ValueError as problem:
        raise SettingsError(f"{flag(name)}: {problem}") from problem


def _choice(name: str, text: str) -> str:
    if text not in _CHOICES[name]:
        raise ValueError(f"{text!r} is none of {', '.join(_CHOICES[name])}")
    return Place(text) if name == "place" else text


def _seconds(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdigit() else parse_duration(text).total_seconds()


def _truth(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "t", "true"):
        return True
    if lowered in ("0", "f", "false"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _gates(text: str) -> Mapping[str, bool]:
    """`A=true,B=false` over the defaults; unknown names are left alone, as upstream does."""
    gates = dict(GATES)
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, found, value = pair.partition("=")
        if not found:
            raise ValueError(f"{pair!r} is not Name=true or Name=false")
        if name.strip() in gates:
            gates[name.strip()] = _truth(value.strip())
    return gates


def _check(settings: Settings) -> None:
    try:
        default_constraints(settings.scheduler_config)
    except SchedulerConfigError as problem:
        raise SettingsError(f"--scheduler-config: {problem}") from problem
    if settings.batch_idle_duration > settings.batch_max_duration:
        raise SettingsError("--batch-idle-duration: is longer than --batch-max-duration, which would never be reached")
    if settings.vm_memory_overhead_percent < 0:
        raise SettingsError("--vm-memory-overhead-percent: may not be negative")
    if settings.reserved_enis < 0:
        raise SettingsError("--reserved-enis: may not be negative")
