"""The pods of a cluster as if they had none of its nodes: what a fleet is compared with."""

from __future__ import annotations

import msgspec

from dovetail.controllers.context import Context
from dovetail.planner.snapshot import Snapshot


async def fresh_demand(context: Context) -> Snapshot:
    """A snapshot with every pod pending and no node."""
    unbound = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
        for pod in context.cluster_state.pods.store.all()
    ]
    snapshot = context.snapshot_builder.build(await context.instance_types.all(), unbound)
    return msgspec.structs.replace(snapshot, nodes=())
