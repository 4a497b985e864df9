"""kube-controller-manager: the workload controllers, node lifecycle, volumes, garbage collection of pods."""
