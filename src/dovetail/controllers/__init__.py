"""The Karpenter-compatible controllers, named after the objects they reconcile. Each waits, takes a snapshot,
plans, acts, records.
"""
