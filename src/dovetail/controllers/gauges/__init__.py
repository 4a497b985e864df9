"""Gauges of the cluster's objects, by Karpenter's names, computed at scrape time."""
