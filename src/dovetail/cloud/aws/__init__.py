"""AWS through botocore: instance types, prices, launch, termination, NodeClass status, interruption queue."""
