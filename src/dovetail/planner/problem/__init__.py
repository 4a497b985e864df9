"""The problem: a snapshot compiled into arrays and masks.

`compile` builds it. `pod_spec`, `pod_classes`, `relaxation`, `request` and `preferences` are about pending pods;
`nodes` and `node_index` about existing nodes; `topology_groups`, `topology_counters` and `spread_order` about spread
and affinity; `volumes` and `shared_volumes` about storage; `resources` is the request matrix; `frontier` has the
offerings worth considering, `min_values` what NodePools ask of their variety.
"""
