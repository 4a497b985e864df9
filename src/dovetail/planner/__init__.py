"""The planner: from a snapshot of the cluster to a plan, without I/O, clock or randomness of its own.

    provision(snapshot)     a node for every pending pod: existing nodes first, new NodeClaims at the least cost
    quote(snapshot)         what that costs an hour, without the plan
    consolidate(snapshot)   which nodes to remove or replace, and where their pods go
    verify(plan, snapshot)  an independent check of a plan, which shares no code with what made it

A plan passes through these packages, in this order; each imports only those above it:

    snapshot, plan      input and output: immutable values
    requirements        label requirements and tolerations, as comparable tuples
    cache               cached results of earlier snapshots
    offerings           what can be launched: every NodePool x instance type x offering, as bit masks
    problem             the snapshot compiled: pod classes, relaxation levels, topology, volumes, offering frontier
    packing             tier 1: place pod classes on nodes; strategies, resizing, zone spread, the objective
    baseline            what Karpenter's scheduler would do with the same problem
    optimise            tier 2: LP relaxation, rounding, patterns, large-neighbourhood search, lower bound
    explain             why a pod has no node: filter funnels, remedies, suggestions
    launch              from a packing to NodeClaims with all compatible offerings
    provision           the pipeline of tier 1 and tier 2
    consolidate         sets of nodes to remove, and what that saves
    verify              imports snapshot and plan alone
"""

from dovetail.planner.consolidate import consolidate
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision, quote
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify

__all__ = ["Plan", "Snapshot", "consolidate", "provision", "quote", "verify"]
