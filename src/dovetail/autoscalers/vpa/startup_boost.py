"""CPU startup boost: more CPU until a while after a pod is Ready (gate CPUStartupBoost)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.autoscalers.vpa.api import (
    REQUESTS_ONLY,
    Amounts,
    Container,
    Pod,
    StartupBoost,
    VerticalPodAutoscaler,
    amounts,
    container_policy,
    controlled_values,
    texts,
)
from dovetail.autoscalers.vpa.proportions import ZERO, proportional_limits
from dovetail.model.meta import condition
from dovetail.model.quantity import Quantity, parse

#: An annotation of this prefix and a container's name holds the resources that the container had before.
BOOST_PREFIX = "vpaCpuStartupBoost/"
_MILLI = 10**6


class BoostError(ValueError):
    """A boost that says neither how much nor by which factor."""


class OriginalResources(msgspec.Struct, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


def is_boosted(pod: Pod) -> bool:
    return any(name.startswith(BOOST_PREFIX) for name in pod.annotations)


def boost_of(container: str, vpa: VerticalPodAutoscaler) -> StartupBoost | None:
    """The boost of a container: that of its own policy replaces the one of all."""
    policy = container_policy(container, vpa.spec.resource_policy)
    own = policy.startup_boost if policy is not None else None
    boost = own or vpa.spec.startup_boost
    return boost if boost is not None and boost.cpu is not None else None


def boosted_cpu(base: Quantity, boost: StartupBoost, most: Quantity) -> Quantity:
    """The CPU request during startup: a multiple of the base, or the base and some more; `most` 0 is no limit."""
    cpu = boost.cpu
    assert cpu is not None
    if cpu.type in ("", "Factor"):
        if cpu.factor is None or cpu.factor < 1:
            raise BoostError(f"startupBoost.cpu.factor: {cpu.factor} is not a whole number of at least 1")
        millicores = base.milli * cpu.factor
    elif cpu.type == "Quantity":
        if cpu.quantity is None:
            raise BoostError("startupBoost.cpu.quantity: is required when type is Quantity")
        millicores = base.milli + parse(cpu.quantity).milli
    else:
        raise BoostError(f"startupBoost.cpu.type: {cpu.type!r} is neither Factor nor Quantity")
    boosted = Quantity(millicores * _MILLI)
    return most if most and boosted > most else boosted


def boosted_resources(
    container: Container,
    vpa: VerticalPodAutoscaler,
    requests: Mapping[str, Quantity],
    limits: Mapping[str, Quantity],
    boost: StartupBoost,
    most: Quantity,
) -> tuple[Amounts, Amounts]:
    """Requests and limits of a container during startup, from what is recommended or else from its spec."""
    original_requests, original_limits = amounts(container.resources.requests), amounts(container.resources.limits)
    base = requests.get("cpu", ZERO) or original_requests.get("cpu", ZERO)
    boosted = boosted_cpu(base, boost, most)
    requests, limits = {**requests, "cpu": boosted}, dict(limits)
    if controlled_values(container.name, vpa.spec.resource_policy) == REQUESTS_ONLY:
        limit = original_limits.get("cpu")
        if limit is not None and boosted.milli > limit.milli:
            below = Quantity(limit.nano - _MILLI, limit.format) if limit.nano > _MILLI else limit
            requests["cpu"] = below
        return requests, limits
    scaled, _ = proportional_limits(original_limits, original_requests, {"cpu": boosted}, {})
    if scaled is not None and "cpu" in scaled:
        limits["cpu"] = scaled["cpu"]
    return requests, limits


def original_resources(container: Container) -> str:
    """The annotation's value: cpu and memory of the container as its spec has them."""

    def kept(listed: Amounts) -> dict[str, str]:
        return texts({name: listed[name] for name in ("cpu", "memory") if name in listed})

    before = OriginalResources(kept(amounts(container.resources.requests)), kept(amounts(container.resources.limits)))
    return msgspec.json.encode(before).decode()


def read_original(pod: Pod, container: str) -> OriginalResources | None:
    """What a boosted container had before; None without the annotation. Raises BoostError if it is unreadable."""
    text = pod.annotations.get(BOOST_PREFIX + container)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=OriginalResources)
    except msgspec.DecodeError as error:
        name = f"{pod.metadata.key}: annotation {BOOST_PREFIX}{container}"
        raise BoostError(f"{name}: {error}; delete the pod to have it set anew") from error


def _ready_for_s(pod: Pod, now: datetime) -> float | None:
    """How long a pod is Ready, without a time of transition for ever; None if it is not."""
    ready = condition(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return None
    since = ready.last_transition_time
    return math.inf if since is None else (now - since).total_seconds()


def expired_boosts(pod: Pod, vpa: VerticalPodAutoscaler, now: datetime) -> list[str]:
    """The boost annotations whose time is over: the pod is Ready for as long as the boost says."""
    ready_for_s = _ready_for_s(pod, now)
    if ready_for_s is None:
        return []
    expired = []
    for name in pod.annotations:
        if not name.startswith(BOOST_PREFIX):
            continue
        duration_s = boost_duration_s(name.removeprefix(BOOST_PREFIX), vpa)
        if duration_s == 0 or ready_for_s > duration_s:
            expired.append(name)
    return sorted(expired)


def boost_duration_s(container: str, vpa: VerticalPodAutoscaler) -> int:
    """How long after Ready a boost lasts: as the container's policy says, or else as the VPA does."""
    policy = container_policy(container, vpa.spec.resource_policy)
    for boost in (policy.startup_boost if policy is not None else None, vpa.spec.startup_boost):
        if boost is not None and boost.cpu is not None and boost.cpu.duration_seconds is not None:
            return boost.cpu.duration_seconds
    return 0


def boost_remaining_s(pod: Pod, vpa: VerticalPodAutoscaler, now: datetime) -> float:
    """Seconds until the next boost of a Ready pod is over; 0 if none is left, or the pod is not Ready."""
    ready_for_s = _ready_for_s(pod, now)
    if ready_for_s is None:
        return 0.0
    left = [
        boost_duration_s(name.removeprefix(BOOST_PREFIX), vpa) - ready_for_s
        for name in pod.annotations
        if name.startswith(BOOST_PREFIX)
    ]
    return min((seconds for seconds in left if seconds > 0), default=0.0)
