"""The Vertical Pod Autoscaler: pure algorithms, and the three programs around them."""
