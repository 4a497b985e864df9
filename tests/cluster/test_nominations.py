"""Nominations: what keeps two plans from launching twice for one pod."""

from __future__ import annotations

from dovetail.cluster.nominations import Nominations, NominationTarget

CLAIM, NODE = NominationTarget("claim", "c"), NominationTarget("node", "n")


def test_a_pod_has_one_nomination_the_latest() -> None:
    kept = Nominations()
    kept.nominate("a", CLAIM)
    kept.nominate("a", NODE)
    assert kept.of("a") == NODE
    assert list(kept.on(CLAIM)) == []
    assert list(kept.on(NODE)) == ["a"]


def test_a_nomination_without_an_end_stands_until_it_is_limited() -> None:
    kept = Nominations()
    kept.nominate("a", CLAIM)
    kept.nominate("b", NODE, until=5.0)
    assert kept.expire(1000.0) == (("b", NODE),)
    kept.limit(CLAIM, 2000.0)
    assert kept.expire(1999.0) == ()
    assert kept.expire(2000.0) == (("a", CLAIM),)
    assert len(kept) == 0


def test_all_nominations_of_a_target_end_with_it() -> None:
    kept = Nominations()
    for uid in "abc":
        kept.nominate(uid, CLAIM)
    assert kept.release_all(CLAIM) == ("a", "b", "c")
    assert kept.of("a") is None
    assert kept.release("a") is None
