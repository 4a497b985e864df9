"""A cloud without machines: the same protocol, seeded, in real or virtual time, on any cluster."""
