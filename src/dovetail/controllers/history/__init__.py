"""Decision history: what was decided, why and at what price, in memory and in the cluster."""
