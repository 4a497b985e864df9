"""Executing commands: replacements first, then the candidates are deleted; or everything is rolled back.

A command is written on its replacement NodeClaims, so that the next process resumes it
where the previous one left it. When a replacement fails, or the command is no longer valid, the
candidates are untainted and the replacements are deleted, so that no surplus node stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from dovetail.cluster.nominations import REPLACEMENT_POD_TIMEOUT_S, NominationTarget, Slot
from dovetail.controllers import logs
from dovetail.controllers.conditions import of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import validation
from dovetail.controllers.disruption.candidates import movable
from dovetail.controllers.disruption.types import (
    Candidate,
    Command,
    CommandNote,
    Copy,
    DisruptionReason,
    legacy_log_text,
)
from dovetail.controllers.disruption.validation import ValidationResult
from dovetail.controllers.history import disruption
from dovetail.controllers.metrics.definitions import snake
from dovetail.controllers.node import taints
from dovetail.controllers.node.termination import deadline
from dovetail.controllers.nodeclaim import binding
from dovetail.controllers.nodeclaim.deletion import delete, termination_mode
from dovetail.controllers.nodepool.static import remaining_nodes
from dovetail.controllers.provisioning import nodeclaim_template
from dovetail.controllers.settings import BindingMode
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.kube.resources import NODECLAIMS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.planner.plan import Plan

COMMAND = "dovetail.sh/command"
CHECK_INTERVAL_S = 1.0
#: How long replacements may take to initialize, in seconds.
REPLACEMENT_TIMEOUT_S = 600.0
#: Seconds until the scheduler has surely received the taint of a node.
TAINT_PROPAGATION_S = 0.5


class Queue:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.commands: dict[str, Command] = {}
        self._has_commands = asyncio.Event()
        self._slots: dict[str, list[tuple[str, str, NominationTarget]]] = {}

    def busy(self) -> frozenset[str]:
        """NodeClaims that a command already has."""
        return frozenset(candidate.claim for command in self.commands.values() for candidate in command.candidates)

    async def start(self, command: Command, plan: Plan | None, copy: Copy | None = None) -> bool:
        """Taint the candidates, create the replacements of the plan, and queue the command; whether it was started.

        With `copy`, one more NodeClaim of a static NodePool is created instead.
        """
        context = self._context
        command = self._narrowed(command, validation.before(context, command))
        for candidate in command.candidates:
            if candidate.claim in self.busy() or not await self._taint_candidate(candidate, command):
                await self._release_candidates(command.candidates)
                return False
        chosen, command = command.candidates, self._narrowed(command, validation.closed(context, command))
        await self._release_candidates([candidate for candidate in chosen if candidate not in command.candidates])
        if not command.candidates:
            return False
        made = await self._create_replacements(command, plan, copy)
        if made is None:
            await self._release_candidates(command.candidates)
            return False
        command = msgspec.structs.replace(command, replacements=made, created=context.clock.monotonic())
        context.cluster_state.mark_for_deletion(candidate.provider_id for candidate in command.candidates)
        self.commands[command.id] = command
        self._has_commands.set()
        self._report(command, plan, copy)
        return True

    def _narrowed(self, command: Command, result: ValidationResult) -> Command:
        """The command for those candidates that are still valid."""
        dropped = [candidate for candidate in command.candidates if candidate not in result.candidates]
        if not dropped:
            return command
        self._context.log.info(
            "disruption no longer holds",
            controller="disruption",
            command=command.log_text(),
            error=result.why,
            **{"command-id": command.id},
        )
        if command.kind:
            self._context.metrics.failed_validations.labels(command.kind).inc(len(dropped))
        saving = command.saving - sum(candidate.price or 0.0 for candidate in dropped)
        return msgspec.structs.replace(command, candidates=result.candidates, saving=saving)

    async def run(self) -> None:
        while True:
            if not self.commands:
                self._has_commands.clear()
                await self._has_commands.wait()
            for command in tuple(self.commands.values()):
                try:
                    await self._step(command)
                except KubeError as problem:
                    self._context.log.error(
                        "Reconciler error", controller="disruption.queue", command=command.id, error=str(problem)
                    )
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _step(self, command: Command) -> None:
        context = self._context
        result = validation.under_way(context, command)
        if result.why:
            left = self._narrowed(command, result)
            if not left.candidates:
                return await self._roll_back(command, result.why)
            await self._release_candidates(
                [candidate for candidate in command.candidates if candidate not in left.candidates]
            )
            command = self.commands[command.id] = left
        waiting = []
        for name in command.replacements:
            claim = context.cluster_state.claims.store.get(name)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                return await self._failed(command, f"replacement {name} is gone")
            if not claim.is_true("Initialized"):
                waiting.append(name)
                text = "Waiting on readiness to continue disruption"
                context.event_publisher.publish(
                    claim, "Normal", "DisruptionWaitingReadiness", text, decision=command.id
                )
        if waiting:
            if context.clock.monotonic() - command.created > REPLACEMENT_TIMEOUT_S:
                await self._failed(command, f"replacements {', '.join(waiting)} did not become ready in time")
            return None
        await self._prepare(command)
        for candidate in command.candidates:
            await self._remove(candidate, command)
        self.commands.pop(command.id, None)
        context.log.info("command succeeded", controller="disruption.queue", **{"command-id": command.id})
        return None

    async def _prepare(self, command: Command) -> None:
        """Taint nodes that receive replacement pods until these are created: the scheduler would pack them worse."""
        context = self._context
        slots = self._slots.pop(command.id, [])
        if context.settings.place is not BindingMode.BIND or not slots:
            return
        nodes = {target: binding.node_of(context, target) for _, _, target in slots}
        names = sorted({name for name in nodes.values() if name})
        answers = await asyncio.gather(*(binding.close_node(context, name) for name in names))
        closed = dict(zip(names, answers, strict=True))
        await asyncio.sleep(TAINT_PROPAGATION_S)
        until = context.clock.monotonic() + REPLACEMENT_POD_TIMEOUT_S
        for owner, uid, target in slots:
            name = nodes[target]
            if name and closed[name]:
                context.cluster_state.nominations.expect_replacement(
                    owner, Slot(NominationTarget("node", name), uid, until)
                )

    async def _remove(self, candidate: Candidate, command: Command) -> None:
        context = self._context
        claim = context.cluster_state.claims.store.get(candidate.claim)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return
        if command.grace is not None:
            await deadline.tighten(context, claim, command.grace)
        node = context.cluster_state.nodes.store.get(candidate.node)
        for subject, name in ((node, "Node"), (claim, "NodeClaim")):
            if subject is not None:
                text = f"Disrupting {name}: {command.reason}"
                context.event_publisher.publish(subject, "Normal", "DisruptionTerminating", text, decision=command.id)
        await delete(
            context, claim, command.reason.lower(), decision=command.id, policy=command.policy, bound=command.grace
        )
        if command.condition:
            mode = termination_mode(claim, command.grace)
            context.metrics.claims_unhealthy_disrupted.labels(
                snake(command.condition), candidate.pool, candidate.capacity_type, claim.status.image_id, mode
            ).inc()

    async def _failed(self, command: Command, why: str) -> None:
        """The replacements do not come up."""
        context = self._context
        context.log.error(
            "failed terminating nodes while executing a disruption command",
            controller="disruption.queue",
            command=command.log_text(),
            error=why,
            **{"command-id": command.id},
        )
        context.metrics.disruption_failures.labels(command.decision, command.reason.lower(), command.kind).inc()
        await self._roll_back(command, why)

    async def _roll_back(self, command: Command, why: str) -> None:
        """Roll back: delete unused replacements, untaint the candidates. Expired nodes are terminated all the same."""
        context = self._context
        context.decision_history.record(disruption.undone(context, command, why))
        if command.reason is DisruptionReason.EXPIRED:
            for candidate in command.candidates:
                await self._remove(candidate, command)
            self.commands.pop(command.id, None)
            return
        for name in command.replacements:
            claim = context.cluster_state.claims.store.get(name)
            if claim is not None and claim.metadata.deletion_timestamp is None and not self._used(claim):
                await delete(context, claim, "rolled_back", decision=command.id)
        await self._release_candidates(command.candidates)
        self._slots.pop(command.id, None)
        self.commands.pop(command.id, None)

    def _used(self, claim: NodeClaim) -> bool:
        """Whether pods run on a replacement already: then it stays."""
        node = self._context.cluster_state.node_for(claim)
        if node is None:
            return False
        pods = self._context.cluster_state.pods_on(node.metadata.name)
        return any(not any(o.kind == "DaemonSet" for o in pod.metadata.owner_references) for pod in pods)

    async def _release_candidates(self, candidates: Sequence[Candidate]) -> None:
        self._context.cluster_state.mark_for_deletion(
            (candidate.provider_id for candidate in candidates), deleting=False
        )
        for candidate in candidates:
            await release(self._context, candidate.node, candidate.claim)

    async def _taint_candidate(self, candidate: Candidate, command: Command) -> bool:
        """Put the taint and the reason on a candidate; False if it changed meanwhile."""
        context = self._context
        node = context.cluster_state.nodes.store.get(candidate.node)
        claim = context.cluster_state.claims.store.get(candidate.claim)
        if node is None or claim is None or context.cluster_state.is_terminating(claim, node):
            return False
        try:
            await taints.add(context, candidate.node)
            if context.safety.stops(command.reason):
                return False
            await _write_reason(context, claim, command.reason)
        except (Conflict, NotFound):
            return False
        return True

    async def _create_replacements(
        self, command: Command, plan: Plan | None, copy: Copy | None
    ) -> tuple[str, ...] | None:
        """Create the replacement NodeClaims; None if one of them could not be created."""
        context = self._context
        made: list[str] = []
        for pool, body in self._replacement_bodies(command, plan, copy):
            if pool is None or (copy is not None and remaining_nodes(context.cluster_state, pool) < 1):
                await self._delete_replacements(command)
                return None
            try:
                claim = await context.nodeclaim_creator.create(body)
            except KubeError as problem:
                context.log.error("creating nodeclaim", controller="disruption", error=str(problem))
                await self._delete_replacements(command)
                return None
            made.append(claim.name)
            context.metrics.claims_created.labels(command.reason.lower(), pool.name, "false").inc()
            text = f"Launching NodeClaim: {command.reason}"
            context.event_publisher.publish(claim, "Normal", "DisruptionLaunching", text, decision=command.id)
        self._nominate(command, plan, made)
        return tuple(made)

    def _replacement_bodies(
        self, command: Command, plan: Plan | None, copy: Copy | None
    ) -> Iterator[tuple[NodePool | None, dict[str, Any]]]:
        """The replacement NodeClaims, each with its NodePool if that still exists; the command is annotated on them."""
        note = msgspec.json.encode(CommandNote.of(command)).decode()
        bodies: list[tuple[NodePool | None, dict[str, Any]]] = []
        if copy is not None:
            bodies.append((copy.pool, nodeclaim_template.static(copy.pool, command.id)))
        for planned in plan.nodes if plan else ():
            pool = self._context.cluster_state.pools.store.get(planned.pool)
            bodies.append((pool, nodeclaim_template.manifest(planned, pool, command.id, ()) if pool else {}))
        for pool, body in bodies:
            if body:
                body["metadata"]["annotations"][COMMAND] = note
            yield pool, body

    async def _delete_replacements(self, command: Command) -> None:
        """Delete what was created for a command, also where the server's answer was lost."""
        context = self._context
        with suppress(KubeError):  # what cannot be read now counts as capacity once it is
            await context.nodeclaim_creator.complete()
        for claim in tuple(context.cluster_state.claims.store.all()):
            if claim.metadata.annotations.get(wellknown.DECISION) == command.id:
                await delete(context, claim, "rolled_back", decision=command.id)

    def _nominate(self, command: Command, plan: Plan | None, made: Sequence[str]) -> None:
        """Nominate the evicted pods for their planned targets: their replacement pods inherit the nominations."""
        if plan is None:
            return
        context = self._context
        names = dict(zip((planned.name for planned in plan.nodes), made, strict=True))
        for candidate in command.candidates:
            for pod in context.cluster_state.pods_on(candidate.node):
                placement = plan.placements.get(pod.metadata.key)
                if placement is not None and placement.new_node in names:
                    target, until = NominationTarget("claim", names[placement.new_node]), None
                elif placement is not None and placement.node is not None:
                    target, until = (
                        NominationTarget("node", placement.node),
                        context.clock.monotonic() + REPLACEMENT_TIMEOUT_S,
                    )
                else:
                    continue
                context.cluster_state.nominate(pod, target, until)
                owner = pod.metadata.controller
                if owner is not None and owner.kind == "ReplicaSet":
                    self._slots.setdefault(command.id, []).append((owner.uid, pod.metadata.uid, target))

    def resume(self) -> None:
        """Resume the commands that a previous process wrote on its replacements."""
        commands: dict[str, tuple[CommandNote, list[str]]] = {}
        for claim in self._context.cluster_state.claims.store.all():
            note = self._read_note(claim)
            if note is not None:
                commands.setdefault(note.id, (note, []))[1].append(claim.name)
        for note, replacements in commands.values():
            alive = tuple(self._with_current_pods(candidate) for candidate in note.candidates if self._alive(candidate))
            if alive:
                self.commands[note.id] = Command(
                    id=note.id,
                    reason=note.reason,
                    kind=note.kind,
                    candidates=alive,
                    replacements=tuple(sorted(replacements)),
                    created=self._context.clock.monotonic(),
                    grace=note.grace,
                    condition=note.condition,
                )
                self._context.cluster_state.mark_for_deletion(candidate.provider_id for candidate in alive)

    def _read_note(self, claim: NodeClaim) -> CommandNote | None:
        """The command annotated on a replacement. With an unreadable one the node stays until it is found empty."""
        text = claim.metadata.annotations.get(COMMAND)
        if not text or claim.metadata.deletion_timestamp is not None:
            return None
        try:
            return msgspec.json.decode(text, type=CommandNote)
        except msgspec.DecodeError as problem:
            self._context.log.error(
                "unreadable command",
                controller="disruption",
                NodeClaim=logs.ref(claim.name),
                error=f"metadata.annotations[{COMMAND}]: {problem}",
            )
            return None

    def _with_current_pods(self, candidate: Candidate) -> Candidate:
        """A candidate with the pods that are on it now."""
        pods = movable(self._context, candidate.node)
        return msgspec.structs.replace(candidate, pods=tuple(pod.metadata.key for pod in pods))

    def _alive(self, candidate: Candidate) -> bool:
        claim = self._context.cluster_state.claims.store.get(candidate.claim)
        return (
            claim is not None
            and claim.metadata.deletion_timestamp is None
            and claim.condition("DisruptionReason") is not None
        )

    def _report(self, command: Command, plan: Plan | None, copy: Copy | None) -> None:
        context = self._context
        context.log.info(
            "disrupting node(s)",
            controller="disruption",
            command=command.log_text(),
            reason=command.reason.lower(),
            decision=command.decision,
            summary=legacy_log_text(command),
            **{
                "command-id": command.id,
                "disrupted-node-count": len(command.candidates),
                "replacement-node-count": len(command.replacements),
                "pod-count": command.evictions,
            },
        )
        labels = (command.decision, command.reason.lower(), command.kind)
        context.metrics.disruption_decisions.labels(*labels).inc()
        for pool in {candidate.pool for candidate in command.candidates}:
            context.metrics.disruption_by_pool.labels(pool, *labels).inc()
        if command.terminate_first:
            pool = command.candidates[0].pool
            context.metrics.terminated_first.labels(pool, command.reason.lower(), command.terminate_first).inc()
        context.decision_history.record(disruption.started(context, command, plan, copy))


async def release(context: Context, node_name: str, claim_name: str) -> None:
    """Remove taint and reason from a node that stays after all."""
    node = context.cluster_state.nodes.store.get(node_name)
    if node is not None and node.metadata.deletion_timestamp is None:
        with suppress(NotFound):
            await taints.remove(context, node_name)
    claim = context.cluster_state.claims.store.get(claim_name)
    if claim is not None and claim.metadata.deletion_timestamp is None:
        await _write_reason(context, claim, None)


async def _write_reason(context: Context, claim: NodeClaim, reason: DisruptionReason | None) -> None:
    conditions = of_claim(claim, context.clock.now())
    if reason is None:
        conditions.clear("DisruptionReason")
    else:
        conditions.true("DisruptionReason", reason, reason)
    if conditions.changed:
        body = status_patch(claim.metadata.resource_version, conditions)
        written = await context.kube.patch(NODECLAIMS, claim.name, body, subresource="status", type=NodeClaim)
        context.cluster_state.assume(written)
