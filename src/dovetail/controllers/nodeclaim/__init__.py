"""The lifecycle of a NodeClaim: launch, registration, initialization, termination."""
