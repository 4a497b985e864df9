"""Kinds of the API versions before v1.

Provisioner and AWSNodeTemplate become NodePool and EC2NodeClass; Machine objects show
NodeClaims.
"""
