"""Giving a machine back: drain, detach, terminate, release."""
