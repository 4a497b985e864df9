"""Settings of Karpenter that have no effect here: a value that asks for something is refused, or named at start.

Refused is what an operator relies on in an emergency; starting without it would hide that it is missing. The rest is
named in one log line each, so that an installation which carries it still starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Inert(NamedTuple):
    """A setting that was given a value which changes nothing, and why it changes nothing."""

    setting: str
    value: str
    reason: str


#: Setting -> why its value changes nothing. The default of each is what Dovetail does.
WITHOUT_EFFECT: Mapping[str, str] = {
    "karpenter_service": "no webhook of the controller is called by this Service",
    "cpu_requests": "planning takes one core and a child process, whatever the container requests",
    "disable_controller_warmup": "a replica that stands by always keeps its watches open",
    "ignore_dra_requests": "no instance type is known by its devices; pods with resource claims wait for the scheduler",
    "kubernetes_min_version": "every API server that serves the watched kinds is spoken to",
    "disable_webhook": "admission is done by the CRDs' own rules; conversion is the command dovetail webhook",
    "webhook_port": "the conversion webhook is a command of its own: dovetail webhook --port",
    "webhook_metrics_port": "the conversion webhook serves no metrics",
    "aws_feature_gates": "no gate of Karpenter's AWS provider is implemented",
}

#: Feature gate -> why opening it changes nothing.
INERT_GATES: Mapping[str, str] = {
    "CapacityBuffer": "CapacityBuffers are stored and not acted on; keep headroom with a Deployment of low priority",
}

#: Setting -> the value that is refused, why, and the remedy.
REFUSED: Mapping[str, tuple[Any, str]] = {
    "enable_zonal_shift": (
        True,
        "a zonal shift would not move launches out of the zone; set it to false and restrict"
        " topology.kubernetes.io/zone in the NodePools during a shift",
    ),
}


def refusals(values: Mapping[str, Any]) -> list[Inert]:
    """Settings whose value cannot be honoured and must not be ignored."""
    return [
        Inert(name, str(values[name]).lower(), why)
        for name, (value, why) in REFUSED.items()
        if values.get(name) == value
    ]


def without_effect(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Inert]:
    """Settings and gates with a value other than their default, which change nothing."""
    settings = [
        Inert(name, _written(values[name]), why)
        for name, why in WITHOUT_EFFECT.items()
        if values[name] != defaults[name] and not (name == "aws_feature_gates" and all_closed(values[name]))
    ]
    gates = values["feature_gates"]
    return settings + [
        Inert(f"feature_gates {gate}", "true", why) for gate, why in INERT_GATES.items() if gates.get(gate)
    ]


def all_closed(gates: str) -> bool:
    """Whether `A=false,B=false` opens no gate: a chart passes it so by default."""
    return not any(pair.strip().lower().endswith("=true") for pair in gates.split(","))


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
