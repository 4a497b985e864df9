"""A cloud without instances: the same protocol, seeded, in real or virtual time, on any cluster."""
