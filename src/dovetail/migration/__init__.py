"""Moving the nodes of node groups to NodePools: a plan with prices, carried out node by node, and back again."""
