"""Head to head with Karpenter's kwok provider on a real control plane, by a driver that only sees the API."""
