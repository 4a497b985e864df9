"""Node: termination, taints, reboots."""
