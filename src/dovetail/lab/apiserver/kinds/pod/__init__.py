"""Pod: defaults, validation of creates and updates, binding, eviction, logs."""
