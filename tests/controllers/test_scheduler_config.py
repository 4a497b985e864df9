"""The scheduler's default constraints, read strictly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube import resources as kinds
from dovetail.model.scheduler_config import SchedulerConfigError, default_constraints

RunScenario = Callable[..., None]
ZONE = "{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}"
WHERE = r"validating scheduler config, podTopologySpread\.defaultConstraints\[0\]"


def _document(*constraints: str) -> str:
    return "podTopologySpread: {defaultConstraints: [" + ", ".join(constraints) + "]}"


def test_nothing_is_no_constraint_and_a_document_is_read() -> None:
    assert default_constraints("") == ()
    (found,) = default_constraints(_document(ZONE))
    assert (found.max_skew, found.topology_key) == (1, "topology.kubernetes.io/zone")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_document(ZONE.replace("1", "0")), WHERE + r"\.maxSkew must be greater than 0"),
        (_document("{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}"), WHERE + r"\.topologyKey must be set"),
        (_document(ZONE.replace("DoNotSchedule", "Perhaps")), WHERE + r"\.whenUnsatisfiable"),
        (_document(ZONE[:-1] + ", labelSelector: {}}"), WHERE + r"\.labelSelector must not be set"),
        (_document(ZONE[:-1] + ", matchLabelKeys: [a]}"), WHERE + r"\.matchLabelKeys must not be set"),
        (_document(ZONE, ZONE), r"\[1\] is a duplicate of \[0\]"),
        (_document(ZONE[:-1] + ", skew: 1}"), 'unknown field "skew"'),
        ("profiles: []", "decoding scheduler config"),
        ("[", "decoding scheduler config"),
    ],
)
def test_mistakes_are_reported_in_karpenters_words(text: str, words: str) -> None:
    with pytest.raises(SchedulerConfigError, match=words):
        default_constraints(text)


def test_pods_of_a_replica_set_are_spread_by_default(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        labels = {"app": "web"}
        body = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 4,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
            },
        }
        owner = await world.kube.create(kinds.REPLICASETS, body)
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        await asyncio.sleep(1)
        for number in range(4):
            pod = {
                "metadata": {
                    "name": f"web-{number}",
                    "labels": labels,
                    "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
                },
                "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]},
            }
            await world.kube.create(kinds.PODS, pod, "default")
        await world.until(world.all_bound)
        zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in await world.list(kinds.NODES)}
        assert zones == {"a", "b"}

    run_scenario(scenario, scheduler_config=_document(ZONE))
