"""Dovetail: just-in-time nodes for Kubernetes."""

__version__ = "0.1.0"
