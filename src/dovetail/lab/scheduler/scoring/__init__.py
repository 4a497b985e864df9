"""Scores of the default kube-scheduler plugins."""
