"""Dovetail: just-in-time machines for Kubernetes."""

__version__ = "0.1.0"
