"""Files instead of a cluster: manifests and recordings read into the same snapshots that a live cluster gives."""
