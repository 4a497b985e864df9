"""Built-in admission plugins: limits, quota, priority, storage class, tolerations."""
