"""The live mirror built from watches, and the snapshots cut from it."""
