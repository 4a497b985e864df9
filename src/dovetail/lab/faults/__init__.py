"""Fault injection: which faults there are, and how they are applied to the API server and the cloud."""
