"""Tier 1: pack pod classes onto nodes.

`state` is a packing in progress, `topology_rules`, `topology_validation` and `attachments` are the rules it keeps.
`packer` places one class: on `candidate_nodes`, on nodes it enlarges (`resize`, `price_index`) or on new ones
(`offering_choice`). `pack` places all classes once by a `strategy`. `objective` says which of two packings is better,
`zone_spread` moves nodes to further zones.
"""
