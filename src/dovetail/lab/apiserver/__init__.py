"""A Kubernetes API server that kubectl and client libraries accept, held to the real one by recordings."""
