"""The embedded cluster.

API server, scheduler, kubelets, workload controllers, metrics and AWS in one process;
scenarios and faults.
"""
