"""The horizontal autoscaler: how many pods a workload should have, decided as kube-controller-manager decides it."""
