"""Which strategy belongs to which resource."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.registry import Strategy

_STRATEGIES: dict[tuple[str, str], Strategy] = {}
_PLAIN = KindStrategy()


def strategy_of(group: str, plural: str) -> Strategy:
    """The strategy of a built-in resource; kinds that mean nothing in particular share one."""
    return _STRATEGIES.get((group, plural), _PLAIN)
