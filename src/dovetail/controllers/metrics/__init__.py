"""What is exported to Prometheus.

definitions under Karpenter's names, gauges read at scrape time, conditions,
pod latency.
"""
