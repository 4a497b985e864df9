"""Kubelets: nodes that register, run containers by a model, report status and evict under pressure."""
