"""Voluntary disruption: which machines go, what comes first in their place, and when not."""
