"""The cluster state built from watches, and the snapshots that are taken of it."""
