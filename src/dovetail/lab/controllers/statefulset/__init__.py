"""StatefulSet: the decision and its controller."""
