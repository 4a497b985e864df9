"""What would change in a cluster: changes, what is predicted of them, and the report."""
