"""Karpenter: what Karpenter would do with the same problem, so that no plan of ours is worse than that.

Written from what Karpenter is seen to do, on the compiled problem. It is a baseline and a safety net for few pods:
who has a node there has one here, at no higher price, with no fewer preferences kept. Large batches do not ask it.
"""
