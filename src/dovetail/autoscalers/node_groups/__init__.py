"""Cluster Autoscaler's algorithm and program: node groups that grow for pending pods and shrink when they idle."""
