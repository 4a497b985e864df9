"""From pending pods to NodeClaims: batch, snapshot, plan, verify, write, record."""
