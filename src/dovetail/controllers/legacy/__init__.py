"""The kinds before v1.

Provisioner and AWSNodeTemplate become NodePool and EC2NodeClass; Machine mirrors
NodeClaim.
"""
