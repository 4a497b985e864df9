"""What the process needs of the Python runtime itself."""
