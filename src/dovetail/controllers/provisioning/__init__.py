"""From pending pods to NodeClaims: batch, cut, plan, verify, write, record."""
