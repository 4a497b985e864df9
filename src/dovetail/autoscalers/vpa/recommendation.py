"""Recommendations as they stand in a VPA's status: quantities, rounding, integer CPU, and the policy's limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from dovetail.autoscalers.vpa.api import (
    Amounts,
    ContainerPolicy,
    ContainerRecommendation,
    PodRecommendation,
    ResourcePolicy,
    amounts,
    container_policy,
    texts,
)
from dovetail.autoscalers.vpa.estimators import ResourceEstimate
from dovetail.model.quantity import BINARY, Quantity, parse

ZERO = Quantity(0)
_INTEGER_CPU_PREFIX = "vpa-post-processor.kubernetes.io/"
_INTEGER_CPU_SUFFIX = "_integerCPU"
_BINARY_UNITS = ((1024**4, "Ti"), (1024**3, "Gi"), (1024**2, "Mi"), (1024, "Ki"))


class FormatSettings(msgspec.Struct, frozen=True, kw_only=True):
    humanize_memory: bool = False
    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1
    integer_cpu: bool = False
    #: Holds for a resource that a container's policy gives no maxAllowed for.
    max_allowed: Mapping[str, str] = {}


class Recommendation(msgspec.Struct, kw_only=True):
    """One container's recommendation; a part may be absent where a status or a pod has none."""

    container: str
    target: Amounts | None = None
    lower: Amounts | None = None
    upper: Amounts | None = None
    uncapped: Amounts | None = None

    def copy(self) -> Recommendation:
        return Recommendation(
            container=self.container,
            target=_copied(self.target),
            lower=_copied(self.lower),
            upper=_copied(self.upper),
            uncapped=_copied(self.uncapped),
        )

    def view(self) -> ContainerRecommendation:
        """As a status has it: with a target, empty or not, and the other parts that are not empty."""
        return ContainerRecommendation(
            container_name=self.container,
            target=texts(self.target or {}),
            lower_bound=texts(self.lower) if self.lower else None,
            upper_bound=texts(self.upper) if self.upper else None,
            uncapped_target=texts(self.uncapped) if self.uncapped else None,
        )


def _copied(quantities: Amounts | None) -> Amounts | None:
    return None if quantities is None else dict(quantities)


def recommendations(status: PodRecommendation | None) -> list[Recommendation]:
    """What a status recommends."""
    return [
        Recommendation(
            container=item.container_name,
            target=amounts(item.target),
            lower=None if item.lower_bound is None else amounts(item.lower_bound),
            upper=None if item.upper_bound is None else amounts(item.upper_bound),
            uncapped=None if item.uncapped_target is None else amounts(item.uncapped_target),
        )
        for item in (status.container_recommendations if status is not None else ())
    ]


def of_container(name: str, items: list[Recommendation]) -> Recommendation | None:
    return next((item for item in items if item.container == name), None)


def targets_text(items: Sequence[Recommendation]) -> str:
    """Targets as the updater's log has them: kilobytes rounded up, and milli-cores.

    The uncapped part repeats the capped values, as upstream's log does.
    """

    def amounts_text(named: Amounts, target: Amounts, end: str) -> str:
        memory, cpu = target.get("memory", ZERO), target.get("cpu", ZERO)
        return (f"{-(-memory.whole // 1000)}k " if named.get("memory") else "") + (
            f"{cpu.milli}m{end}" if named.get("cpu") else ""
        )

    text = ""
    for item in items:
        text += f"{item.container}: "
        target = item.target or {}
        if item.target is not None:
            text += "target: " + amounts_text(target, target, "; ")
        if item.uncapped is not None:
            text += "uncappedTarget: " + amounts_text(item.uncapped, target, ";")
    return text


def rounded_up(amount: int, scale: int) -> int:
    """The next multiple of `scale`; a scale of 0 or less leaves the amount alone."""
    return amount if scale <= 0 else math.ceil(amount / scale) * scale


def humanized(size_bytes: int) -> str:
    """Bytes in the largest binary unit that fits, with two decimals."""
    for unit, suffix in _BINARY_UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.2f}{suffix}"
    return str(size_bytes)


def quantities(estimated: Mapping[str, int], settings: FormatSettings) -> Amounts:
    """Milli-cores and bytes as quantities, rounded."""
    spelled: Amounts = {}
    for name, amount in estimated.items():
        if name == "cpu":
            spelled[name] = Quantity(rounded_up(amount, settings.round_cpu_millicores) * 10**6)
        else:
            size = rounded_up(amount, settings.round_memory_bytes)
            human = settings.humanize_memory and size
            spelled[name] = parse(humanized(size)) if human else Quantity(size * 10**9, BINARY)
    return spelled


def integer_cpu_containers(annotations: Mapping[str, str]) -> set[str]:
    """The containers whose CPU shall be whole cores, by annotations of the VPA."""
    return {
        key[len(_INTEGER_CPU_PREFIX) : -len(_INTEGER_CPU_SUFFIX)]
        for key, value in annotations.items()
        if key.startswith(_INTEGER_CPU_PREFIX) and key.endswith(_INTEGER_CPU_SUFFIX) and value == "true"
    } - {""}


def with_integer_cpu(item: Recommendation) -> Recommendation:
    whole = item.copy()
    for part in (whole.target, whole.lower, whole.upper, whole.uncapped):
        if part is not None and "cpu" in part:
            part["cpu"] = Quantity(part["cpu"].whole * 10**9)
    return whole


def raised_to(quantity: Quantity, name: str, least: Mapping[str, Quantity]) -> tuple[Quantity, bool]:
    """A quantity, or the least one allowed; a least of zero counts as unset."""
    bound = least.get(name)
    return (bound, True) if bound and quantity < bound else (quantity, False)


def lowered_to(quantity: Quantity, name: str, most: Mapping[str, Quantity]) -> tuple[Quantity, bool]:
    bound = most.get(name)
    return (bound, True) if bound and quantity > bound else (quantity, False)


def capped_to_policy(
    item: Recommendation, policy: ContainerPolicy | None, max_allowed: Mapping[str, Quantity]
) -> Recommendation:
    """Between minAllowed and maxAllowed, where the greatest wins a conflict. The uncapped target stays."""
    least = amounts(policy.min_allowed) if policy is not None else {}
    most = {**max_allowed, **(amounts(policy.max_allowed) if policy is not None else {})}
    capped = item.copy()
    for part in (capped.target, capped.lower, capped.upper):
        for name in part or {}:
            assert part is not None
            part[name] = lowered_to(raised_to(part[name], name, least)[0], name, most)[0]
    return capped


def pod_recommendation(
    estimates: Mapping[str, ResourceEstimate],
    policy: ResourcePolicy | None,
    annotations: Mapping[str, str],
    settings: FormatSettings,
) -> PodRecommendation:
    """The status of a VPA, sorted by container: rounded, whole cores where asked for, then capped."""
    whole = integer_cpu_containers(annotations) if settings.integer_cpu else set()
    max_allowed = amounts(settings.max_allowed)
    items = []
    for name in sorted(estimates):
        estimated = estimates[name]
        target = quantities(estimated.target, settings)
        item = Recommendation(
            container=name,
            target=target,
            lower=quantities(estimated.lower, settings),
            upper=quantities(estimated.upper, settings),
            uncapped=dict(target),
        )
        if name in whole:
            item = with_integer_cpu(item)
        items.append(capped_to_policy(item, container_policy(name, policy), max_allowed).view())
    return PodRecommendation(container_recommendations=tuple(items))
