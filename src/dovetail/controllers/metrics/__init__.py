"""Prometheus metrics.

Definitions under Karpenter's names, gauges read at scrape time, conditions,
pod latency.
"""
