"""Our kinds in every API generation. One internal form, v1; older generations convert on the way in."""

from dovetail.model.kinds.buffer import CapacityBuffer
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodeclass import EC2NodeClass
from dovetail.model.kinds.nodepool import Budget, NodePool
from dovetail.model.kinds.overlay import NodeOverlay

__all__ = ["Budget", "CapacityBuffer", "EC2NodeClass", "NodeClaim", "NodeOverlay", "NodePool"]
