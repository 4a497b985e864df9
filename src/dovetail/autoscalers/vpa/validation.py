"""What the webhook does to VerticalPodAutoscalers: the default mode, warnings, and refusals.

What an object already uses it may keep, even where a feature gate is off now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dovetail.autoscalers.vpa.api import (
    AUTO,
    IN_PLACE,
    NAMED_MODES,
    RECREATE,
    REQUESTS_AND_LIMITS,
    ContainerPolicy,
    StartupBoost,
    UpdatePolicy,
    VerticalPodAutoscaler,
)
from dovetail.model.meta import Amount
from dovetail.model.quantity import QuantityError, parse

_ENABLE = "you must enable feature gate {} in the admission-controller args"


class FeatureGates(msgspec.Struct, frozen=True, kw_only=True):
    """The gates of 1.8; all are alpha and off."""

    cpu_startup_boost: bool = False
    in_place: bool = False
    per_vpa_config: bool = False


class RefusedField(msgspec.Struct, frozen=True, kw_only=True):
    """One refused field; `type` and `text` are those of the API server's field errors."""

    type: str
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def default_patches(spec: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The update policy that an object without one gets."""
    if spec is not None and spec.get("updatePolicy") is not None:
        return []
    return [{"op": "add", "path": "/spec/updatePolicy", "value": {"updateMode": RECREATE}}]


def validate(
    vpa: VerticalPodAutoscaler, old: VerticalPodAutoscaler | None, gates: FeatureGates
) -> tuple[list[RefusedField], list[str]]:
    """Errors and warnings of an object that is created (`old` is None) or updated."""
    errors: list[RefusedField] = []
    warnings: list[str] = []
    spec = vpa.spec
    allowed = _allowed(old, gates)
    if spec.target_ref is None and old is None:
        text = "If you're using v1beta1 version of the API, please migrate to v1"
        errors.append(_required("spec.targetRef", text))
    if spec.update_policy is not None:
        errors += _update_policy(spec.update_policy, allowed)
        if spec.update_policy.update_mode == AUTO:
            warnings.append(
                'spec.updatePolicy: "Auto" mode is deprecated and will be removed in a future API version. '
                f"Use explicit update modes like: [{' '.join(NAMED_MODES)}]. "
                "See https://github.com/kubernetes/autoscaler/issues/8424 for more details."
            )
    kept = _controlled(old)
    for index, policy in enumerate(spec.resource_policy.container_policies if spec.resource_policy else ()):
        path = f"spec.resourcePolicy.containerPolicies[{index}]"
        errors += _container_policy(policy, path, kept, allowed)
        warnings += [
            f'{where}: unsupported value "{name}" is allowed only because it is present in the existing '
            'VPA object; supported values: "cpu", "memory"'
            for where, name in _uncontrollable(policy, path)
            if name in kept
        ]
    if spec.startup_boost is not None:
        errors += _startup_boost(spec.startup_boost, "spec.startupBoost", allowed)
    if spec.recommenders is not None and len(spec.recommenders) > 1:
        count = len(spec.recommenders)
        errors.append(
            RefusedField(
                type="FieldValueTooMany",
                field="spec.recommenders",
                text=f"Too many: {count}: must have at most 1 item",
            )
        )
    return errors, warnings


def _allowed(old: VerticalPodAutoscaler | None, gates: FeatureGates) -> FeatureGates:
    """The gates, and what the old object already uses."""
    if old is None:
        return gates
    policy = old.spec.update_policy
    policies = old.spec.resource_policy.container_policies if old.spec.resource_policy is not None else ()
    boost = old.spec.startup_boost
    return FeatureGates(
        cpu_startup_boost=gates.cpu_startup_boost
        or (boost is not None and boost.cpu is not None)
        or any(item.startup_boost is not None for item in policies),
        in_place=gates.in_place or (policy is not None and policy.update_mode == IN_PLACE),
        per_vpa_config=gates.per_vpa_config
        or (policy is not None and policy.evict_after_oom_seconds is not None)
        or any(
            value is not None
            for item in policies
            for value in (
                item.oom_bump_up_ratio,
                item.oom_min_bump_up,
                item.memory_aggregation_interval_count,
                item.memory_aggregation_interval_seconds,
            )
        ),
    )


def _controlled(old: VerticalPodAutoscaler | None) -> set[str]:
    policies = old.spec.resource_policy.container_policies if old is not None and old.spec.resource_policy else ()
    return {name for item in policies for name in item.controlled_resources or ()}


def _update_policy(policy: UpdatePolicy, allowed: FeatureGates) -> Iterator[RefusedField]:
    path, mode = "spec.updatePolicy", policy.update_mode
    if mode is None:
        yield _required(f"{path}.updateMode", "updateMode is required if UpdatePolicy is used")
    elif mode not in (*NAMED_MODES, AUTO):
        yield _unsupported(f"{path}.updateMode", mode, NAMED_MODES)
    elif mode == IN_PLACE and not allowed.in_place:
        yield _forbidden(f"{path}.updateMode", f"in order to use UpdateMode InPlace, {_ENABLE.format('InPlace')}")
    if policy.min_replicas is not None and policy.min_replicas <= 0:
        yield _invalid(f"{path}.minReplicas", policy.min_replicas, "minReplicas has to be positive")
    yield from _per_vpa(policy.evict_after_oom_seconds, f"{path}.evictAfterOOMSeconds", allowed)


def _uncontrollable(policy: ContainerPolicy, path: str) -> Iterator[tuple[str, str]]:
    """The controlled resources that no VPA can control, with their paths."""
    for number, name in enumerate(policy.controlled_resources or ()):
        if name not in ("cpu", "memory"):
            yield f"{path}.controlledResources[{number}]", name


def _container_policy(
    policy: ContainerPolicy, path: str, kept: set[str], allowed: FeatureGates
) -> Iterator[RefusedField]:
    if not policy.container_name:
        yield _required(f"{path}.containerName", "")
    if policy.mode is not None and policy.mode not in ("Auto", "Off"):
        yield _unsupported(f"{path}.mode", policy.mode, ("Auto", "Off"))
    most = policy.max_allowed or {}
    for name, text in (policy.min_allowed or {}).items():
        yield from _resolution(f"{path}.minAllowed[{name}]", name, text)
        if name in most and parse(most[name]) < parse(text):
            words = f'max resource for {name} is lower than min of "{parse(text)}"'
            yield _invalid(f"{path}.maxAllowed[{name}]", str(parse(most[name])), words)
    for name, text in most.items():
        yield from _resolution(f"{path}.maxAllowed[{name}]", name, text)
    if policy.mode == "Off" and policy.controlled_values == REQUESTS_AND_LIMITS:
        text = "controlledValues shouldn't be specified if container scaling mode is off"
        yield _forbidden(f"{path}.controlledValues", text)
    for where, name in _uncontrollable(policy, path):
        if name not in kept:
            yield _unsupported(where, name, ("cpu", "memory"))
    if policy.oom_bump_up_ratio is not None:
        if not allowed.per_vpa_config:
            yield _gated(f"{path}.oomBumpUpRatio")
        elif (ratio := parse(policy.oom_bump_up_ratio).milli / 1000) < 1:
            yield _invalid(f"{path}.oomBumpUpRatio", ratio, "must be greater than or equal to 1.0")
    if policy.oom_min_bump_up is not None:
        if not allowed.per_vpa_config:
            yield _gated(f"{path}.oomMinBumpUp")
        elif (least := parse(policy.oom_min_bump_up).whole) < 0:
            yield _invalid(f"{path}.oomMinBumpUp", least, "must be greater than or equal to 0")
    seconds, count = policy.memory_aggregation_interval_seconds, policy.memory_aggregation_interval_count
    yield from _per_vpa(seconds, f"{path}.memoryAggregationIntervalSeconds", allowed)
    yield from _per_vpa(count, f"{path}.memoryAggregationIntervalCount", allowed)
    if policy.startup_boost is not None:
        yield from _startup_boost(policy.startup_boost, f"{path}.startupBoost", allowed)


def _startup_boost(boost: StartupBoost, path: str, allowed: FeatureGates) -> Iterator[RefusedField]:
    if not allowed.cpu_startup_boost:
        yield _forbidden(path, f"in order to use startupBoost, {_ENABLE.format('CPUStartupBoost')}")
        return
    cpu = boost.cpu
    if cpu is None:
        return
    if not cpu.type:
        yield _required(f"{path}.cpu.type", "must be either Factor or Quantity")
    elif cpu.type == "Factor":
        if cpu.factor is None:
            yield _required(f"{path}.cpu.factor", "required when type is Factor")
        elif cpu.factor < 1:
            yield _invalid(f"{path}.cpu.factor", cpu.factor, "must be >= 1 for type Factor")
    elif cpu.type == "Quantity":
        if cpu.quantity is None:
            yield _required(f"{path}.cpu.quantity", "required when type is Quantity")
        else:
            yield from _resolution(f"{path}.cpu.quantity", "cpu", cpu.quantity)
    else:
        yield _unsupported(f"{path}.cpu.type", cpu.type, ("Factor", "Quantity"))


def _per_vpa(value: int | None, path: str, allowed: FeatureGates) -> Iterator[RefusedField]:
    if value is None:
        return
    if not allowed.per_vpa_config:
        yield _gated(path)
    elif value < 1:
        yield _invalid(path, value, "must be greater than or equal to 1")


def _resolution(path: str, name: str, text: Amount) -> Iterator[RefusedField]:
    try:
        amount = parse(text)
    except QuantityError as error:
        yield _invalid(path, str(text), str(error))
        return
    if name == "cpu" and amount.nano % 10**6:
        yield _invalid(path, str(amount), "must be a whole number of milli CPUs")
    elif name == "memory" and amount.nano % 10**9:
        yield _invalid(path, str(amount), "must be a whole number of bytes")


def _required(path: str, text: str) -> RefusedField:
    words = f"Required value: {text}" if text else "Required value"
    return RefusedField(type="FieldValueRequired", field=path, text=words)


def _invalid(path: str, value: object, text: str) -> RefusedField:
    spelled = f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    return RefusedField(type="FieldValueInvalid", field=path, text=f"Invalid value: {spelled}: {text}")


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> RefusedField:
    names = ", ".join(f'"{name}"' for name in supported)
    return RefusedField(
        type="FieldValueNotSupported", field=path, text=f'Unsupported value: "{value}": supported values: {names}'
    )


def _forbidden(path: str, text: str) -> RefusedField:
    return RefusedField(type="FieldValueForbidden", field=path, text=f"Forbidden: {text}")


def _gated(path: str) -> RefusedField:
    return _forbidden(path, "not supported when feature flag PerVPAConfig is disabled")


def refusal(name: str, errors: list[RefusedField]) -> dict[str, Any]:
    """The status of a refused object, with all its errors."""
    texts = [str(error) for error in errors]
    words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = "VerticalPodAutoscaler"
    return {
        "status": "Failure",
        "reason": "Invalid",
        "code": 422,
        "message": f'{kind}.autoscaling.k8s.io "{name}" is invalid: {words}',
        "details": {
            "name": name,
            "group": "autoscaling.k8s.io",
            "kind": kind,
            "causes": [{"reason": error.type, "message": error.text, "field": error.field} for error in errors],
        },
    }
