"""The baseline: a simulation of Karpenter's scheduler on the same problem, so that no plan is worse than Karpenter's.

It is written from Karpenter's observed behaviour and works on the compiled problem. It is used where pods are few: a
pod that Karpenter places is placed, at no higher price, with no more violated preferences. Large batches do without it.
"""
