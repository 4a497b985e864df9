"""Workloads: a scenario with the NodePools and the node groups that stand for the same offer."""
