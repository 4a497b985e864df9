"""Variety: a request has room for so many types, and minValues want them to be different in so many ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dovetail.cloud.provider import LaunchOption
from dovetail.model.labels import ZONE
from dovetail.model.requirements import Requirement

#: What minValues are asked of, by label.
Needs = Mapping[str, Requirement]


def cut(options: Sequence[LaunchOption], needs: Needs, most: int) -> tuple[LaunchOption, ...]:
    """The options of at most so many types: the cheapest, once there are as many different ones as are needed.

    Options come cheapest first, and stay in order.
    """
    types: dict[str, list[LaunchOption]] = {}
    for option in options:
        types.setdefault(option.instance_type.name, []).append(option)
    if len(types) <= most:
        return tuple(options)
    kept = list(dict.fromkeys([*_different(types, needs), *types]))[:most]
    return tuple(option for option in options if option.instance_type.name in kept)


def lacking(options: Iterable[LaunchOption], needs: Needs) -> list[str]:
    """The labels that the options do not have enough values of."""
    seen: dict[str, set[str]] = {key: set() for key in needs}
    for option in options:
        for key, need in needs.items():
            seen[key].update(_values(option, need))
    return sorted(key for key, need in needs.items() if len(seen[key]) < (need.min_values or 0))


def _different(types: Mapping[str, Sequence[LaunchOption]], needs: Needs) -> list[str]:
    """Types that have something new to offer, cheapest first, until there is enough of everything."""
    seen: dict[str, set[str]] = {key: set() for key in needs}
    names = []
    for name, options in types.items():
        fresh = {
            key: values
            for key, need in needs.items()
            if len(seen[key]) < (need.min_values or 0)
            and (values := {value for option in options for value in _values(option, need)} - seen[key])
        }
        if fresh:
            names.append(name)
            for key, values in fresh.items():
                seen[key] |= values
    return names


def _values(option: LaunchOption, need: Requirement) -> list[str]:
    """What an option counts for: values that the requirement allows."""
    values = (option.offering.zone,) if need.key == ZONE else option.instance_type.labels.get(need.key, ())
    return [value for value in values if need.has(value)]
