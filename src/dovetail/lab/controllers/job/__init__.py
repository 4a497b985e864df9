"""Job: the decision, indexes, failure policy, backoff and the controller."""
