"""DaemonSet: the decision, rolling updates and the controller."""
