"""Node termination: drain, detach, terminate, release."""
