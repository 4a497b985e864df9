"""A command outlives its process in an annotation of its replacements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.controllers.disruption.queue import COMMAND
from dovetail.controllers.disruption.types import Candidate, Command, CommandNote, DisruptionReason
from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]
#: What Kubernetes lets all annotations of an object take, in bytes.
LONGEST = 256 * 1024


def _candidate(number: int) -> Candidate:
    return Candidate(
        node=f"ip-10-0-{number // 256}-{number % 256}.ap-northeast-2.compute.internal",
        claim=f"default-{number:05}",
        provider_id=f"aws:///ap-northeast-2a/i-{number:017x}",
        pool="default",
        instance_type="m5.2xlarge",
        zone="ap-northeast-2a",
        capacity_type="on-demand",
        price=0.472,
        cost=58.0,
        pods=tuple(f"production/a-deployment-5d4f8c7b9-{number:03}{pod:02}" for pod in range(58)),
    )


def test_a_command_over_hundreds_of_full_nodes_fits_on_its_replacements() -> None:
    command = Command(
        id="d-12345678", reason=DisruptionReason.UNDERUTILIZED, candidates=tuple(map(_candidate, range(500)))
    )
    text = msgspec.json.encode(CommandNote.of(command))
    assert len(text) < LONGEST
    note = msgspec.json.decode(text, type=CommandNote)
    assert (note.id, note.reason) == (command.id, command.reason)
    assert [candidate.claim for candidate in note.candidates] == [candidate.claim for candidate in command.candidates]


def test_an_unreadable_command_does_not_stop_the_start(run_scenario: RunScenario) -> None:
    """Any user may edit the annotation; a process that could not start for it would never start again."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await world.stop()
        (claim,) = await world.list(kinds.NODECLAIMS)
        note = {"metadata": {"annotations": {COMMAND: '{"id": 3}'}}}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], note)
        await world.served(1, prefix="q", cpu="1500m")
        (published,) = world.logged("unreadable command")
        assert COMMAND in published["error"]

    run_scenario(scenario)
