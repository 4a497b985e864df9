"""Voluntary disruption: which nodes are removed, what replaces them first, and when not."""
