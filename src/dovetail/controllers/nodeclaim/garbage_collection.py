"""Garbage both ways: NodeClaims whose instance is gone, and instances whose NodeClaim is gone.

Only the provider id and the claim's UID count, never a name. A NodeClaim whose Node is Ready stays, whatever the cloud
leaves out: credentials of another account or region see none of our instances, and the kubelet's status is better
evidence. Where the cloud leaves out more NodeClaims in one list than fail by themselves, nothing is collected and safe
mode begins; an instance that the cloud describes as terminated is not left out. An instance is terminated only when
the server answers that its very NodeClaim does not exist; where that is true of most of the fleet, another cluster of
our name is likelier than as many lost NodeClaims, so it must be true for an hour. A new process collects often at
first: the previous one may have died between two writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from dovetail.cloud.provider import Instance, InstanceNotFound
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.safemode import SafeModeCause
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import NODECLAIMS
from dovetail.language import source
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.reasons import REASONS

PERIOD_S = 120.0
#: The first rounds of a process, and the seconds between them.
STARTUP_INTERVAL_S, STARTUP_ROUNDS = 10.0, 20
#: An instance launched less than so many seconds ago may not be listed yet.
LISTED_AFTER_S = 300.0
#: More NodeClaims than both of these left out in one list say more about the list than about the instances.
MAX_UNLISTED, MAX_UNLISTED_SHARE = 2, 0.1
#: An instance this young may belong to a NodeClaim that is being written right now.
MIN_INSTANCE_AGE = timedelta(seconds=30)
#: Orphans beyond this number, and beyond half of the fleet, are kept until they have been orphans for so long.
FEW_ORPHANS, MANY_ORPHANS_AGE_S = 2, 3600.0


class GarbageCollection:
    """The controllers `nodeclaim.garbagecollection` and `instance.garbagecollection`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "garbagecollection")
        self._orphans: dict[str, float] = {}

    async def run(self) -> None:
        await every(
            STARTUP_INTERVAL_S, self.collect, "garbagecollection", self._context.log, self._ids, times=STARTUP_ROUNDS
        )
        await every(PERIOD_S, self.collect, "garbagecollection", self._context.log, self._ids, again=STARTUP_INTERVAL_S)

    async def collect(self) -> None:
        with self._context.safety.cloud("list instances"):
            instances = await self._context.cloud.instances()
        await self._orphan_claims(instances)
        await self._orphan_instances(instances)

    async def _orphan_claims(self, instances: tuple[Instance, ...]) -> None:
        context = self._context
        listed = {instance.provider_id for instance in instances}
        claims = tuple(context.cluster_state.claims.store.all())
        missing = [claim for claim in claims if claim.status.provider_id not in listed and _is_launched(claim)]
        if not missing:
            context.safety.set(SafeModeCause.CLOUD_EMPTY, None)
            return
        launched = sum(map(_is_launched, claims))
        terminated, unlisted = await self._unlisted(missing)
        many = len(unlisted) > max(MAX_UNLISTED, MAX_UNLISTED_SHARE * launched)
        context.safety.set(SafeModeCause.CLOUD_EMPTY, _cloud_empty(len(unlisted), launched) if many else None)
        for claim in [*terminated, *(() if many else unlisted)]:
            if self._may_exist(claim):
                continue
            decision = await delete(context, claim, "garbage_collected")
            context.log.info(
                "garbage collecting nodeclaim with no cloudprovider representation",
                controller="nodeclaim.garbagecollection",
                NodeClaim=logs.ref(claim.name),
                Node=logs.ref(claim.status.node_name),
                decision=decision,
                **{"provider-id": claim.status.provider_id},
            )

    async def _unlisted(self, claims: Sequence[NodeClaim]) -> tuple[list[NodeClaim], list[NodeClaim]]:
        """Of NodeClaims that a list left out: those whose instance is described as terminated, and those not found."""
        answers = await asyncio.gather(*map(self._absence, claims))  # at once, so that few calls ask for many
        absent = [(claim, answer) for claim, answer in zip(claims, answers, strict=True) if answer is not None]
        return [claim for claim, answer in absent if answer.why], [claim for claim, answer in absent if not answer.why]

    async def _absence(self, claim: NodeClaim) -> InstanceNotFound | None:
        try:
            await self._context.cloud.get(claim.status.provider_id)
        except InstanceNotFound as answer:
            return answer
        return None

    def _may_exist(self, claim: NodeClaim) -> bool:
        """Whether the Node, or the NodeClaim's age, shows that an instance which the cloud does not list may exist."""
        node, launched = self._context.cluster_state.node_for(claim), claim.condition("Launched")
        if node is not None or claim.is_true("Registered"):
            return node is not None and node.ready
        since = launched.last_transition_time if launched is not None else None
        return since is None or (self._context.clock.now() - since).total_seconds() < LISTED_AFTER_S

    async def _orphan_instances(self, instances: tuple[Instance, ...]) -> None:
        context, now = self._context, self._context.clock.monotonic()
        oldest = context.clock.now() - MIN_INSTANCE_AGE
        claims = context.cluster_state.claims.store.all()
        owned = {claim.status.provider_id or claim.metadata.uid for claim in claims}
        orphans = [
            instance
            for instance in instances
            if instance.provider_id not in owned
            and instance.claim_uid not in owned
            and instance.state == "running"
            and instance.created < oldest
            and await self._orphaned(instance)
        ]
        self._orphans = {orphan.provider_id: self._orphans.get(orphan.provider_id, now) for orphan in orphans}
        for instance in self._terminable(orphans, len(instances)):
            try:
                with context.safety.cloud("terminate instances"):
                    await context.cloud.terminate(instance.provider_id)
            except InstanceNotFound:
                continue
            context.log.info(
                "garbage collected cloudprovider instance",
                controller="instance.garbagecollection",
                decision=self._record(instance),
                **{"provider-id": instance.provider_id},
            )

    def _record(self, instance: Instance) -> str:
        decision_history = self._context.decision_history
        name, pool = instance.claim_name or "", instance.node_pool or ""
        decision = Decision(
            id=decision_history.new_id(),
            kind="end",
            time=decision_history.now(),
            reason="garbage_collected",
            subject=instance.provider_id,
            summary=source("{instance_type} in {zone} is terminated: its NodeClaim {name} does not exist").format(
                instance_type=instance.instance_type, zone=instance.zone, name=name
            ),
            about=tuple(filter(None, (name, pool))),
        )
        decision_history.record(decision)
        return decision.id

    async def _orphaned(self, instance: Instance) -> bool:
        """Whether the server answers that the instance's NodeClaim does not exist, or has another instance."""
        name = instance.claim_name
        if name is None:
            return False
        try:
            claim = await self._context.kube.get(NODECLAIMS, name, type=NodeClaim)
        except NotFound as answer:
            return answer.details.get("name") == name  # otherwise the server does not know the kind just now
        return (claim.status.provider_id or claim.metadata.uid) not in (instance.provider_id, instance.claim_uid)

    def _terminable(self, orphans: list[Instance], fleet: int) -> list[Instance]:
        """Those of the orphans that may be terminated now."""
        if len(orphans) <= max(FEW_ORPHANS, fleet // 2):
            return orphans
        self._context.log.error(
            "keeping instances without a NodeClaim",
            controller="instance.garbagecollection",
            error=REASONS["MANY_ORPHANS"].message(orphans=len(orphans), fleet=fleet),
            remedy=REASONS["MANY_ORPHANS"].remedy,
            code="MANY_ORPHANS",
        )
        since = self._context.clock.monotonic() - MANY_ORPHANS_AGE_S
        return [instance for instance in orphans if self._orphans[instance.provider_id] <= since]


def _is_launched(claim: NodeClaim) -> bool:
    """Whether the cloud should list an instance of the NodeClaim."""
    meta = claim.metadata
    return bool(claim.status.provider_id) and meta.deletion_timestamp is None and claim.is_true("Launched")


def _cloud_empty(unlisted: int, claims: int) -> str:
    reason = REASONS["CLOUD_EMPTY"]
    return f"{reason.message(unlisted=unlisted, claims=claims)}: {reason.remedy} (CLOUD_EMPTY)"
