"""Strategies: the knobs of a packing. Trying several and keeping the best is how the planner hedges."""

from __future__ import annotations

import msgspec


class Strategy(msgspec.Struct, frozen=True):
    """How to pack: in which order pod classes are placed, how new nodes are chosen, how domains are filled."""

    future_demand_weight: float = 1.0
    """How much demand still to come counts when a new node is sized; 0: for this class alone."""
    order: str = "max"
    """What classes are ordered by: their largest share of a resource, the sum, CPU, memory, or as Karpenter does."""
    domain_rotation: int = 0
    max_node_price: float = float("inf")
    prefer_larger_nodes: bool = False
    """Enlarge a planned node before another one is opened."""
    by_priority: bool = False
    pessimistic_limits: bool = False
    """Count a node against its NodePool's limits as the largest type it may become, as Karpenter does."""
    minimise_limits: bool = False
    """Spend as little of the limits as possible, instead of money."""
    size_for_demand: bool = False
    """Open nodes for what is to come rather than for the pods at hand."""
    full_nodes_first: bool = False
    """Take the least price a pod for as many full nodes as there are, and look again for the rest."""
    balance_counted: bool = False
    """Balance pods that a spread merely counts as well, so that its owners find every domain open."""
    existing_first: bool = False
    """Fill existing nodes as far as maxSkew allows before domains are balanced."""
    cheapest_domain: bool = False
    """Do not balance: take the cheapest domain that maxSkew allows."""
