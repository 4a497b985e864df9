"""What one evaluation may cost. The real server cancels an expression past its limit, so that none keeps it busy.

Cost is counted where it can grow: for every element of a loop, what the body costs if all of it is evaluated. The real
evaluator counts what it did evaluate, so near the limit it may go on a little longer.
"""

from __future__ import annotations

from dovetail.lab.apiserver.crd.cel.parser import Node

#: The limit of one expression, in the units of the real evaluator: a variable, a field and a call are 1 each.
PER_CALL_LIMIT = 1_000_000
EXCEEDED = "operation cancelled: actual cost limit exceeded"
_LIST_COST, _MAP_COST = 10, 30
_COSTS = {
    **dict.fromkeys(("name", "select", "select?", "index", "index?", "binary", "not", "negate", "call"), 1),
    "list": _LIST_COST,
    "map": _MAP_COST,
    "message": _MAP_COST,
}
#: Loops count their own elements.
_LOOPS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})


class CostLimitExceeded(Exception):
    """Ends the whole evaluation: unlike other failures no `||`, `&&` or loop goes on after it."""


class CostMeter:
    """What is left of the limit of the expression that is being evaluated."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = PER_CALL_LIMIT

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise CostLimitExceeded


METER = CostMeter()


def static_cost(node: object) -> int:
    """The cost of evaluating all of a tree once, the bodies of its loops aside."""
    if isinstance(node, list):
        return sum(static_cost(item) for item in node)
    if not isinstance(node, tuple) or not node:
        return 0
    kind = node[0]
    if kind == "const":
        return 0
    if kind == "call" and node[1] in _LOOPS and node[2] is not None:
        return static_cost(node[2])
    own = _COSTS.get(kind, 0) if isinstance(kind, str) else 0
    return own + sum(static_cost(part) for part in node if isinstance(part, tuple | list))


def element_cost(bodies: tuple[Node, ...], overhead: int) -> int:
    """What an element of a loop costs: its bodies, and what the loop itself does to its result."""
    return overhead + sum(static_cost(body) for body in bodies)
