"""Strategies: the parameters of one packing. The planner packs by several strategies and keeps the best packing."""

from __future__ import annotations

import msgspec


class Strategy(msgspec.Struct, frozen=True):
    """How to pack: in which order pod classes are placed, how new nodes are chosen, how domains are filled."""

    future_demand_weight: float = 1.0
    """Weight of the demand of later classes when a new node is sized; 0: for this class alone."""
    order: str = "max"
    """The order of classes: by largest share of a resource, sum of shares, CPU, memory, or Karpenter's order."""
    domain_rotation: int = 0
    max_node_price: float = float("inf")
    prefer_larger_nodes: bool = False
    """Enlarge a planned node before another one is opened."""
    by_priority: bool = False
    pessimistic_limits: bool = False
    """Count a node against its NodePool's limits as the largest type it may become, as Karpenter does."""
    minimise_limits: bool = False
    """Choose offerings by the share of the limits that they take, instead of by price."""
    size_for_demand: bool = False
    """Size new nodes for later demand rather than for the pods being placed."""
    full_nodes_first: bool = False
    """Choose the offering with the least price per pod for as many nodes as are filled, then again for the rest."""
    balance_counted: bool = False
    """Also balance pods that a spread counts but that do not own it, so that its owners may use every domain."""
    existing_first: bool = False
    """Fill existing nodes as far as maxSkew allows before domains are balanced."""
    cheapest_domain: bool = False
    """Do not balance: take the cheapest domain that maxSkew allows."""
    ignored_preferences: frozenset[int] = frozenset()
    """Pod classes, by index, that give up all preferences at once instead of one at a time."""
