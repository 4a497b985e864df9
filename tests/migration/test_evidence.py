"""A migration ends no instance, and removes no NodePool, because a Node or a group is not listed."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.migration import next_action as actions
from dovetail.migration import plan
from dovetail.migration.groups import Group, Sizes
from dovetail.migration.next_action import Observed, next_action
from dovetail.migration.record import CORDONED, MigrationRecord, Phase
from dovetail.model.nodes import Node
from tests.autoscalers.node_group_objects import NOW, node
from tests.migration.simulated import REQUEST, Move, play
from tests.migration.simulated import group as spec


def cordoned(name: str) -> Node:
    return node(name, annotations={CORDONED: "a"})


def group(size: int, joined: int = 0) -> Group:
    """The first instances are those of `nodes(joined)`."""
    ids = [f"aws:///zone-a/n{index}" for index in range(size)]
    return Group(name="a", sizes=Sizes(0, max(size, joined), size), instances=tuple(ids), suspended=SUSPENDED)


SUSPENDED = frozenset({"AZRebalance", "AlarmNotification", "ScheduledActions"})
POOL = {"kind": "NodePool", "metadata": {"name": "pool"}}


def record(phase: Phase = Phase.FORWARD, desired: int = 4) -> MigrationRecord:
    sizes = {"a": Sizes(0, desired, desired)}
    return MigrationRecord(phase=phase, started="", order=("a",), sizes=sizes, objects=(POOL,))


def seen(groups: list[Group], *nodes: Node) -> Observed:
    ready = {**POOL, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    return Observed(
        now=NOW,
        groups={item.name: item for item in groups},
        nodes=nodes,
        pods=(),
        objects={("NodePool", "pool"): ready},
    )


def test_an_instance_that_never_joined_is_ended() -> None:
    action = next_action(record(), seen([group(2)], node("other")))
    assert isinstance(action, actions.Terminate)


@pytest.mark.parametrize("size", [3, 10])
def test_many_instances_without_nodes_are_not_ended(size: int) -> None:
    """A wrong kubeconfig, or an answer without nodes: they may run pods of another cluster."""
    action = next_action(record(desired=size), seen([group(size)], node("other")))
    assert isinstance(action, actions.Wait)
    assert f"{size} instances of group a are no Nodes of this cluster" in action.what


@pytest.mark.parametrize(("strangers", "ended"), [(5, True), (10, True), (11, False)])
def test_the_share_that_may_never_have_joined_is_of_the_group_as_it_was(strangers: int, ended: bool) -> None:
    """What the plan accepts is carried out, also when the nodes that joined are gone."""
    full, joined = group(100), tuple(node(f"n{index}") for index in range(strangers, 100))
    assert (not plan._foreign_groups([full], joined)) is ended
    action = next_action(record(desired=100), seen([group(strangers)], node("other")))
    assert isinstance(action, actions.Terminate if ended else actions.Wait)


def test_no_instance_is_ended_where_no_node_is_listed() -> None:
    assert isinstance(next_action(record(), seen([group(1)])), actions.Wait)


def test_a_group_that_is_not_listed_is_not_done_while_its_nodes_stand() -> None:
    action = next_action(record(), seen([], cordoned("n0")))
    assert action == actions.Wait("group a is not among the groups that AWS lists")
    gone = next_action(record(), seen([], node("other")))
    assert isinstance(gone, actions.Remember) and gone.record.phase is Phase.DONE


def test_going_back_removes_no_nodepool_while_a_group_is_not_listed() -> None:
    """Its nodes could not come back, and the NodePool's would go."""
    back = record(Phase.BACK)
    assert isinstance(next_action(back, seen([], node("other"))), actions.Wait)
    empty = msgspec.structs.replace(back, sizes={"a": Sizes(0, 9, 0)})
    assert isinstance(next_action(empty, seen([], node("other"))), actions.DeleteObject)


def test_a_plan_for_the_groups_of_another_cluster_is_refused() -> None:
    async def body(move: Move) -> None:
        assert (await move.plan(REQUEST)).blockers == ()
        nodes = [item for item in await move.manifests() if item["kind"] == "Node"]
        for item in nodes:
            if move.groups.owner(item["metadata"]["name"]) == "a":
                item["spec"]["providerID"] += "-of-another-cluster"
        others = [item for item in await move.manifests() if item["kind"] != "Node"]

        async def manifests() -> list[dict[str, object]]:
            return [*others, *nodes]

        move.manifests = manifests  # type: ignore[method-assign]
        [blocker] = (await move.plan(REQUEST)).blockers
        assert blocker.code == "InstancesWithoutNodes"
        assert blocker.why == "2 of its 2 instances are no Nodes of this cluster"
        assert "kubeconfig" in blocker.remedy

    play(body, spec("a", 2))
