"""The candidate cache: after any changes it equals a fresh evaluation of all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cluster.nominations import NominationTarget
from dovetail.cluster.state import ClusterState
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.candidate_cache import CandidateCache, Evaluations
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.wellknown import DO_NOT_DISRUPT, INSTANCE_TYPE, NODEPOOL, ZONE
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.snapshot import Pool

STAMP = "%Y-%m-%dT%H:%M:%SZ"
NODE_NUMBERS, PODS = range(4), range(8)


class _Silent:
    async def handle(self, request: Request) -> Response:
        return Response(status=404)


def _pools(price: float) -> tuple[Pool, ...]:
    offering = Offering(zone="a", capacity_type="on-demand", price=price)
    kind = InstanceType(name="m", capacity={}, overhead={}, labels={}, offerings=(offering,))
    return (Pool(name="default", types=(kind,)),)


class World:
    """A cluster state, its candidate cache, and random changes of either."""

    def __init__(self, chance: Chance) -> None:
        self.clock = Clock(asyncio.get_running_loop(), EPOCH)
        self.cluster_state = ClusterState(Kube(InProcess(_Silent()), self.clock, chance=Chance(1)), self.clock)
        self.context = cast(
            Context,
            SimpleNamespace(
                cluster_state=self.cluster_state, clock=self.clock, settings=SimpleNamespace(gate=lambda name: False)
            ),
        )
        self.chance, self.version, self.pools = chance, 1, _pools(1.0)
        self.candidate_cache = CandidateCache(self.context)

    def meta(self, name: str, **more: Any) -> dict[str, Any]:
        self.version += 1
        return {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.version), **more}

    def happens(self) -> None:
        kinds: tuple[Callable[[], None], ...] = (
            self.node,
            self.claim,
            self.pod,
            self.pod,
            self.pod,
            self.budget,
            self.mark,
            self.nominate,
            self.sell,
        )
        self.chance.choice(kinds)()

    def node(self) -> None:
        name = f"n{self.chance.choice(NODE_NUMBERS)}"
        if self.chance.random() < 0.2:
            self.cluster_state.nodes._remove(name)
            return
        labels = {NODEPOOL: "default", INSTANCE_TYPE: "m", ZONE: "a", "karpenter.sh/capacity-type": "on-demand"}
        notes = {DO_NOT_DISRUPT: "true"} if self.chance.random() < 0.2 else {}
        body = {
            "metadata": self.meta(name, labels=labels, annotations=notes),
            "spec": {"providerID": f"cloud:///{name}"},
        }
        self.cluster_state.nodes._put(name, msgspec.convert(body, Node))

    def claim(self) -> None:
        number = self.chance.choice(NODE_NUMBERS)
        if self.chance.random() < 0.2:
            self.cluster_state.claims._remove(f"c{number}")
            return
        true = [kind for kind in ("Initialized", "Consolidatable", "Rebooting") if self.chance.random() < 0.7]
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": EPOCH.strftime(STAMP)} for kind in true]
        status = {"providerID": f"cloud:///n{number}", "conditions": conditions}
        body = {"metadata": self.meta(f"c{number}", labels={NODEPOOL: "default"}), "status": status}
        self.cluster_state.claims._put(f"c{number}", msgspec.convert(body, NodeClaim))

    def pod(self) -> None:
        name, node = f"p{self.chance.choice(PODS)}", self.chance.choice(("", "n0", "n1", "n2", "n3"))
        if self.chance.random() < 0.2:
            self.cluster_state.pods._remove(f"default/{name}")
            return
        notes = {DO_NOT_DISRUPT: self.chance.choice(("true", "2m"))} if self.chance.random() < 0.3 else {}
        labels = {"app": self.chance.choice(("web", "db"))}
        body = {
            "metadata": self.meta(name, namespace="default", labels=labels, annotations=notes),
            "spec": {"nodeName": node},
            "status": {"startTime": self.clock.now().strftime(STAMP)},
        }
        self.cluster_state.pods._put(f"default/{name}", msgspec.convert(body, Pod))

    def budget(self) -> None:
        app = self.chance.choice(("web", "db"))
        if self.chance.random() < 0.3:
            self.cluster_state.budgets._remove(f"default/{app}")
            return
        body = {
            "metadata": self.meta(app, namespace="default"),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": self.chance.choice((0, 1, 2))},
        }
        self.cluster_state.budgets._put(f"default/{app}", msgspec.convert(body, PodDisruptionBudget))

    def mark(self) -> None:
        self.cluster_state.mark_for_deletion(
            [f"cloud:///n{self.chance.choice(NODE_NUMBERS)}"], deleting=self.chance.random() < 0.5
        )

    def nominate(self) -> None:
        pods, number = list(self.cluster_state.unbound()), self.chance.choice(NODE_NUMBERS)
        target = (
            NominationTarget("node", f"n{number}")
            if self.chance.random() < 0.5
            else NominationTarget("claim", f"c{number}")
        )
        for pod in pods[:1]:
            self.cluster_state.nominate(pod, target, self.clock.monotonic() + 30.0)

    def sell(self) -> None:
        if self.chance.random() < 0.3:
            self.pools = _pools(self.chance.random())


def _plain(evaluations: Evaluations) -> tuple[object, ...]:
    return (
        sorted(evaluations.candidates, key=lambda each: each.node),
        evaluations.consolidatable_since,
        evaluations.blocked,
        evaluations.until,
    )


def test_the_cache_equals_a_fresh_evaluation_of_all_nodes() -> None:
    async def scenario(seed: int) -> set[str]:
        world = World(Chance(seed))
        seen: set[str] = set()
        for _ in range(250):
            world.happens()
            if world.chance.random() < 0.5:
                await asyncio.sleep(world.chance.choice((1.0, 10.0, 60.0)))
                evaluations = world.candidate_cache.evaluations(world.pools)
                assert _plain(evaluations) == _plain(CandidateCache(world.context).evaluations(world.pools))
                seen |= {blocker.code for why in evaluations.blocked.values() for blocker in why}
                seen |= {"candidate"} if evaluations.candidates else set()
                seen |= {"until"} if evaluations.until else set()
        return seen

    seen: set[str] = set()
    for seed in range(6):
        seen |= run_virtual(scenario(seed))
    published = {
        "PDB",
        "DO_NOT_DISRUPT_POD",
        "DO_NOT_DISRUPT_NODE",
        "DELETING",
        "NOMINATED",
        "REBOOTING",
        "NOT_INITIALIZED",
    }
    assert seen >= {*published, "candidate", "until"}  # the scenarios reach all of these


def test_a_node_without_changes_is_the_same_candidate_object_again() -> None:
    async def scenario(seed: int) -> int:
        """How many candidates were compared."""
        world = World(Chance(seed))
        for _ in range(200):
            world.happens()
        before = {candidate.node: candidate for candidate in world.candidate_cache.evaluations(world.pools).candidates}
        await asyncio.sleep(timedelta(hours=1).total_seconds())
        after = {candidate.node: candidate for candidate in world.candidate_cache.evaluations(world.pools).candidates}
        for node in before.keys() & after.keys():
            assert after[node] is before[node]
        return len(before.keys() & after.keys())

    assert sum(run_virtual(scenario(seed)) for seed in range(20)) >= 3
