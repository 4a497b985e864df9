"""The arithmetic of rolling a Deployment."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.clock import EPOCH
from dovetail.lab.controllers.deployment.rollout import (
    ScaleReplicaSet,
    allowances,
    initial,
    next_steps,
    rescale,
    share,
    was_scaled,
)
from dovetail.lab.controllers.deployment.status import counted


def deployment(replicas: int, surge: Any = "25%", unavailable: Any = "25%") -> dict[str, Any]:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}}


def replicaset(
    name: str, replicas: int, available: int, desired: int = 0, most: int = 0, born: str = "1"
) -> dict[str, Any]:
    marks = {
        "deployment.kubernetes.io/desired-replicas": str(desired),
        "deployment.kubernetes.io/max-replicas": str(most),
    }
    return {
        "metadata": {"name": name, "annotations": marks if desired else {}, "creationTimestamp": born},
        "spec": {"replicas": replicas},
        "status": {"availableReplicas": available},
    }


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"), [("25%", 10, True, 3), ("25%", 10, False, 2), (4, 10, True, 4)]
)
def test_surge_rounds_up_and_unavailability_down(value: Any, total: int, up: bool, expected: int) -> None:
    assert share(value, total, up=up) == expected


def test_a_rollout_that_may_neither_surge_nor_lack_lets_one_pod_be_missing() -> None:
    assert allowances(deployment(3, 0, 0)) == (0, 1)


def test_a_new_revision_starts_with_the_surge() -> None:
    old = replicaset("old", 10, 10)
    assert initial(deployment(10), [old]) == 3


def test_old_pods_go_only_as_far_as_availability_allows() -> None:
    steps = next_steps(deployment(10), replicaset("new", 3, 0), [replicaset("old", 10, 10)])
    assert steps == [ScaleReplicaSet("old", 8)]


def test_unhealthy_old_pods_go_first_so_that_they_do_not_block() -> None:
    steps = next_steps(
        deployment(10), replicaset("new", 3, 0), [replicaset("a", 4, 4, born="1"), replicaset("b", 6, 4, born="2")]
    )
    assert steps == [ScaleReplicaSet("b", 4)]


def test_nothing_moves_while_nothing_is_available() -> None:
    assert next_steps(deployment(4, 0, 1), replicaset("new", 1, 0), [replicaset("old", 3, 3)]) == []


def test_scaling_in_the_middle_of_a_rollout_is_shared_in_proportion() -> None:
    new, old = replicaset("new", 5, 2, 10, 13, "2"), replicaset("old", 8, 8, 10, 13, "1")
    changed = deployment(20)
    assert was_scaled(changed, [new, old])
    steps = {step.name: step.replicas for step in rescale(changed, new, [old])}
    assert steps == {"old": 15, "new": 10}


def test_pods_on_their_way_out_are_counted_once_every_set_that_was_looked_at_tells_of_them() -> None:
    whole = {"metadata": {"generation": 1}, **deployment(2)}
    fresh, silent = {"spec": {"replicas": 2}}, {"spec": {"replicas": 2}, "status": {"observedGeneration": 1}}
    observed = {"spec": {"replicas": 2}, "status": {"observedGeneration": 1, "terminatingReplicas": 3}}
    assert [
        counted(whole, None, sets, EPOCH).get("terminatingReplicas")
        for sets in ([], [fresh], [observed, fresh], [observed, silent])
    ] == [0, 0, 3, None]
