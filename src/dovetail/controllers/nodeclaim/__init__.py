"""The life of a NodeClaim: launch, registration, initialization, and its end."""
