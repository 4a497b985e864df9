"""From a packing to NodeClaims: `node_claims` with all compatible offerings, `rejected_offerings` with the reason why
each cheaper one was not used, `price_filter` for replacements that must keep a saving.
"""
