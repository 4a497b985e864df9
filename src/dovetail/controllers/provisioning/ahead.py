"""Thinking ahead: a plan for those who wait already, made while the batch is still open for others.

Mostly nobody else comes. Then the plan is there when the window closes, and machines are bought a second sooner.
"""

from __future__ import annotations

import asyncio

import msgspec

from dovetail.model.pods import Pod
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Snapshot

#: A plan and what the verifier has against it.
Checked = tuple[Plan, list[str]]


class Thought(msgspec.Struct, frozen=True):
    """A question, and the answer that is on its way."""

    snapshot: Snapshot
    answer: asyncio.Future[Checked]


def begun(snapshot: Snapshot, answer: asyncio.Future[Checked]) -> Thought:
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, even if nobody asks
    return Thought(snapshot, answer)


#: What else a plan to buy looks at; budgets only matter to those who give machines back.
_ASIDE = ("namespaces", "claims", "volumes", "storage_classes", "priorities", "default_spread", "selectors",
          "unavailable", "preferences", "min_values")  # fmt: skip


def alike(one: Snapshot, other: Snapshot) -> bool:
    """Whether two questions have one answer: the same pods to place, the same machines, the same to buy."""
    before = {pod.metadata.uid: pod for pod in one.pending}
    return (
        len(one.pools) == len(other.pools)
        and all(mine is yours for mine, yours in zip(one.pools, other.pools, strict=True))
        and [node.name for node in one.nodes] == [node.name for node in other.nodes]
        and len(one.pending) == len(other.pending)
        and all(_same(before.get(pod.metadata.uid), pod) for pod in other.pending)
        and [daemon.spec for daemon in one.daemons] == [daemon.spec for daemon in other.daemons]
        and all(getattr(one, name) == getattr(other, name) for name in _ASIDE)
    )


def _same(one: Pod | None, other: Pod) -> bool:
    """Whether a pod asks for the same; what others say of its state does not matter."""
    return one is not None and (
        one is other
        or (one.metadata.labels == other.metadata.labels and (one.spec is other.spec or one.spec == other.spec))
    )
