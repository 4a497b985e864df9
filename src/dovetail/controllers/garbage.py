"""Garbage both ways: claims whose machine is gone, and machines whose claim is gone.

Only the provider id and the claim's UID count, never a name, and only what the cloud says of that very machine: what
a list left out is not gone. A machine that is gone and whose node is ready all the same has been taken over by
another machine of its name; that must hold for minutes. Claims are read afresh before any machine is ended, since our
mirror may be behind. A new life looks often at first: the one before may have died between two writes.
"""

from __future__ import annotations

from datetime import timedelta

from dovetail.cloud.protocol import Machine, MachineNotFound
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.launch import delete
from dovetail.controllers.worker import every
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim

PERIOD = 120.0
#: The first rounds of a life, and the seconds between them.
HASTE, ROUNDS = 10.0, 20
#: For how many seconds a machine must be gone that a ready node speaks for.
TAKEN_OVER = 300.0
#: A machine this young may belong to a claim that is being written right now.
YOUNG = timedelta(seconds=30)


class Garbage:
    """The controllers `nodeclaim.garbagecollection` and `instance.garbagecollection`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._missing: dict[str, float] = {}

    async def run(self) -> None:
        await every(HASTE, self.collect, "garbagecollection", self._context.log, times=ROUNDS)
        await every(PERIOD, self.collect, "garbagecollection", self._context.log)

    async def collect(self) -> None:
        machines = await self._context.cloud.machines()
        await self._orphan_claims(machines)
        await self._orphan_machines(machines)

    async def _orphan_claims(self, machines: tuple[Machine, ...]) -> None:
        context = self._context
        alive = {machine.provider_id for machine in machines}
        missing = [
            claim
            for claim in context.mirror.claims.store.all()
            if claim.is_true("Registered")
            and claim.metadata.deletion_timestamp is None
            and claim.status.provider_id not in alive
            and await self._gone(claim.status.provider_id)
        ]
        now = context.clock.monotonic()
        self._missing = {each.metadata.uid: self._missing.get(each.metadata.uid, now) for each in missing}
        for claim in missing:
            node = context.mirror.node_for(claim)
            if node is not None and node.ready and now - self._missing[claim.metadata.uid] < TAKEN_OVER:
                continue
            await delete(context, claim, "garbage_collected")
            context.log.info(
                "garbage collecting nodeclaim with no cloudprovider representation",
                controller="nodeclaim.garbagecollection",
                NodeClaim=logs.ref(claim.name),
                Node=logs.ref(claim.status.node_name),
                **{"provider-id": claim.status.provider_id},
            )

    async def _gone(self, provider_id: str) -> bool:
        try:
            await self._context.cloud.get(provider_id)
        except MachineNotFound:
            return True
        return False

    async def _orphan_machines(self, machines: tuple[Machine, ...]) -> None:
        context = self._context
        oldest = context.clock.now() - YOUNG
        suspects = [machine for machine in machines if machine.created < oldest and not self._owner_known(machine)]
        if not suspects:
            return
        claims = (await context.kube.list(NODECLAIMS, type=NodeClaim)).items
        uids = {claim.metadata.uid for claim in claims}
        ids = {claim.status.provider_id for claim in claims}
        for machine in suspects:
            if machine.claim_uid in uids or machine.provider_id in ids or machine.state != "running":
                continue
            try:
                await context.cloud.terminate(machine.provider_id)
            except MachineNotFound:
                continue
            context.log.info(
                "garbage collected cloudprovider instance",
                controller="instance.garbagecollection",
                **{"provider-id": machine.provider_id},
            )

    def _owner_known(self, machine: Machine) -> bool:
        mirror = self._context.mirror
        claim = mirror.claims.store.get(machine.claim_name or "")
        return claim is not None and (
            claim.metadata.uid == machine.claim_uid or claim.status.provider_id == machine.provider_id
        )
