"""Autoscalers beside the provisioner: in each a pure algorithm and a thin controller."""
