"""The pods of a budget are counted as they change; the counts are those of a look at all of them."""

from __future__ import annotations

import random

import msgspec

from dovetail.lab.controllers.pdb_index import Coverage
from dovetail.lab.controllers.views import Condition, Meta, Owner, PodFields, PodStatus

_OWNERS = ((), (Owner("ReplicaSet", "web", "1", True),), (Owner("ReplicaSet", "api", "2", True),))


def _pod(chance: random.Random) -> PodFields:
    meta = Meta(
        name=f"pod-{chance.randrange(12)}",
        namespace="default",
        owner_references=chance.choice(_OWNERS),
        deletion_timestamp=chance.choice((None, None, "2026-01-01T00:00:00Z")),
    )
    return PodFields(meta, status=PodStatus(conditions=(Condition("Ready", chance.choice(("True", "False"))),)))


def test_what_is_counted_one_by_one_is_what_a_look_at_all_pods_finds() -> None:
    chance, kept = random.Random(1), Coverage()
    for _ in range(400):
        pod = _pod(chance)
        if chance.random() < 0.3:
            kept.drop(pod.metadata.key)
        else:
            kept.put(pod)
        fresh = Coverage(kept)
        assert (len(kept), kept.owners) == (len(fresh), fresh.owners)
        for but in ([], ["pod-3", "pod-7"]):
            assert kept.healthy(but) == fresh.healthy(but)
        assert kept.healthy(()) == kept.healthy({"absent": ""})


def test_a_pod_that_changes_keeps_its_place() -> None:
    one, two = (PodFields(Meta(name=name, namespace="default")) for name in ("one", "two"))
    kept = Coverage((one, two))
    kept.put(msgspec.structs.replace(one, status=PodStatus(phase="Running")))
    assert [pod.metadata.name for pod in kept] == ["one", "two"]
