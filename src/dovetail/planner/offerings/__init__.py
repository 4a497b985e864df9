"""What can be launched.

`catalog` lists every combination of NodePool, instance type and offering, cheapest first, and answers label and
resource filters as bit masks. `open_labels` enumerates the values of labels that a NodePool or a type leaves open.
`alternatives` says which offerings a planned node may still change to.
"""
