"""Consolidation: which nodes to remove or replace.

`search` looks for the best set of nodes, `candidates` simulates the removal of a set with its disruption cost,
`subsets` proposes sets by an integer programme, `policy` has budgets and eviction costs, `lower_bound` the lower bound
of the fleet's cost.
"""

from dovetail.planner.consolidate.search import consolidate

__all__ = ["consolidate"]
