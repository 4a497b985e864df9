"""Kubernetes objects as values.

quantities, requirements, taints, selectors, our kinds in every API version,
lint, reasons.
"""
