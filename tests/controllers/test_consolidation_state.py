"""When the fleet is evaluated: for changes that could allow a removal, and not for others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.consolidation import ConsolidationProposal
from dovetail.controllers.disruption.consolidation_state import (
    DEARER,
    SEARCH_TTL_S,
    SETTLED_S,
    ConsolidationState,
    RejectionCache,
)
from dovetail.controllers.disruption.controller import PendingConsolidation
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, PDBS, PODS, Resource
from dovetail.kube.store import Store
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.pods import Pod
from dovetail.model.wellknown import DO_NOT_DISRUPT
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.plan import Cost, Plan
from dovetail.planner.snapshot import Pool


class Watched:
    """The cluster state as the consolidation state uses it."""

    def __init__(self) -> None:
        self.claims = SimpleNamespace(store=Store[NodeClaim]())
        self.pools = SimpleNamespace(store=Store[NodePool]())
        self.listeners: dict[str, Callable[[CacheChange[Any]], None]] = {}

    def listen(self, resource: Resource, listener: Callable[[CacheChange[Any]], None]) -> None:
        self.listeners[resource.name] = listener

    def change(self, resource: Resource, old: Any, new: Any) -> None:
        kind = "added" if old is None else "deleted" if new is None else "modified"
        self.listeners[resource.name](CacheChange(cast(Any, kind), "x", old, new))


def consolidation_state() -> tuple[ConsolidationState, Watched]:
    cluster_state = Watched()
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    return ConsolidationState(cast(Context, SimpleNamespace(cluster_state=cluster_state, clock=clock))), cluster_state


def pod(node: str = "n", **metadata: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", **metadata}, "spec": {"nodeName": node}}, Pod)


def claim(consolidatable: bool = False, expires: str = "Never") -> NodeClaim:
    conditions = [{"type": "Consolidatable", "status": "True"}] if consolidatable else []
    created = EPOCH.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"metadata": {"name": "c", "creationTimestamp": created}, "spec": {"expireAfter": expires}}
    return msgspec.convert({**body, "status": {"conditions": conditions}}, NodeClaim)


def budget(allowed: int) -> PodDisruptionBudget:
    return msgspec.convert({"metadata": {"name": "b"}, "status": {"disruptionsAllowed": allowed}}, PodDisruptionBudget)


def test_new_pods_trigger_no_pass_and_deleted_pods_do() -> None:
    async def main() -> None:
        found, cluster_state = consolidation_state()
        cluster_state.change(PODS, None, pod(""))
        cluster_state.change(PODS, pod(""), pod("n"))
        cluster_state.change(PDBS, budget(3), budget(2))
        cluster_state.change(PDBS, budget(2), budget(0))
        cluster_state.change(NODECLAIMS, None, claim())
        cluster_state.change(NODECLAIMS, claim(consolidatable=True), claim())
        assert found.count == 0 and not found.woken.is_set()
        cluster_state.change(PODS, pod("n"), pod("n", deletionTimestamp="2026-01-01T00:00:00Z"))
        cluster_state.change(PDBS, budget(0), budget(1))
        cluster_state.change(PODS, pod(annotations={DO_NOT_DISRUPT: "true"}), pod())
        assert found.count == 3 and not found.woken.is_set()
        cluster_state.change(NODECLAIMS, claim(), claim(consolidatable=True))
        assert found.count == 4 and found.woken.is_set()

    run_virtual(main())


def test_a_pending_consolidation_holds_while_all_that_it_was_made_from_is_unchanged() -> None:
    one, other = object(), object()
    proposal = ConsolidationProposal(
        candidates=(), plan=Plan(placements={}, nodes=(), cost=Cost(per_hour=0.0)), saving=1.0
    )
    pending = PendingConsolidation(proposal, 0.0, ((one,), (other,)))
    assert pending.still(((one,), (other,)))
    assert not pending.still(((one, other), ()))
    assert not pending.still(((one,), (object(),)))


def test_a_settled_fleet_is_evaluated_again_in_time() -> None:
    async def main() -> None:
        found, cluster_state = consolidation_state()
        assert not found.none
        found.passed(found.count, settled=True, again=math.inf)
        assert found.none and found.left() == SETTLED_S
        cluster_state.change(NODECLAIMS, None, claim(expires="5m"))
        assert 299.0 < found.left() < 301.0
        await asyncio.sleep(found.left() + 0.01)
        assert not found.none
        found.passed(found.count, settled=False, again=math.inf)
        assert not found.none
        found.passed(found.count, settled=True, again=found.instant(EPOCH + timedelta(minutes=6)))
        assert 50.0 < found.left() < 61.0

    run_virtual(main())


def test_other_offers_trigger_a_pass_and_the_same_do_not() -> None:
    async def main() -> None:
        found, _ = consolidation_state()
        pools = [Pool(name="a", types=()), Pool(name="b", types=())]
        found.offered(pools)
        before = found.count
        found.offered(list(pools))
        assert found.count == before
        found.offered(pools[:1])
        assert found.count == before + 1

    run_virtual(main())


def test_removal_sets_that_were_searched_for_in_vain_are_left_until_the_fleet_is_dearer() -> None:
    """What was not found while pods came and went may be found afterwards, and not the other way round."""
    rejections = RejectionCache()
    assert rejections.vain(0.0, recent_pod_events=True) == -math.inf
    rejections.searched(0.04, 0.0, recent_pod_events=True)
    assert (
        rejections.vain(1.0, recent_pod_events=True) == 0.04 + DEARER
        and rejections.vain(1.0, recent_pod_events=False) == -math.inf
    )
    rejections.searched(0.03, 10.0, recent_pod_events=False)
    assert rejections.vain(11.0, recent_pod_events=False) == 0.03 + DEARER
    assert rejections.vain(10.0 + SEARCH_TTL_S, recent_pod_events=True) == -math.inf
