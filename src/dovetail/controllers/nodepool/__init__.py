"""NodePool: readiness, validation, hash, usage, registration health, static capacity."""
