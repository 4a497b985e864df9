"""Consolidation: which nodes to remove or replace.

`search` looks for the best set of nodes, `candidates` simulates a set and says what it costs to disrupt it, `subsets`
proposes sets by an integer programme, `policy` has budgets and eviction costs, `lower_bound` what no fleet can cost
less than.
"""

from dovetail.planner.consolidate.search import consolidate

__all__ = ["consolidate"]
