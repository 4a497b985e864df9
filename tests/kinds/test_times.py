"""Times that a definition lets pass though they are too long to count: they never come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.controllers.disruption import expiration
from dovetail.controllers.nodeclaim.deletion import termination_mode
from dovetail.model.kinds import NodeClaim, NodePool
from dovetail.model.kinds.nodeclaim import NodeClaimSpec

BORN = datetime(2026, 3, 4, tzinfo=UTC)


def claim(**spec: str) -> NodeClaim:
    given = {"metadata": {"name": "c", "creationTimestamp": BORN.isoformat()}, "spec": spec}
    return msgspec.convert(given, NodeClaim)


@pytest.mark.parametrize(
    ("text", "life"),
    [("1h30m", timedelta(minutes=90)), ("0s", timedelta(0)), ("Never", None), ("99999999h", None)],
)
def test_a_life_beyond_counting_is_for_ever(text: str, life: timedelta | None) -> None:
    """One claim written by hand must not stop the watch that dates all of them."""
    found = claim(expireAfter=text)
    assert found.spec.life == life
    assert expiration.date(found) == (None if life is None else BORN + life)
    pool = msgspec.convert({"spec": {"disruption": {"consolidateAfter": text}}}, NodePool)
    assert pool.spec.disruption.quiet_time == life


@pytest.mark.parametrize(("text", "mode"), [("0s", "forceful"), ("1h", "eventual"), ("99999999h", "graceful")])
def test_a_grace_beyond_counting_bounds_no_drain(text: str, mode: str) -> None:
    assert termination_mode(claim(terminationGracePeriod=text)) == mode


@pytest.mark.parametrize(("expiry", "life"), [("24h", timedelta(hours=24)), ("Never", None), (None, None)])
def test_a_claim_that_was_never_converted_lives_as_long_as_its_pool_says(
    expiry: str | None, life: timedelta | None
) -> None:
    """The first generations of claims had no date of their own; without the pool nothing is ended."""
    old = msgspec.structs.replace(
        claim(), spec=msgspec.convert({"nodeClassRef": {"name": "default"}, "expireAfter": "720h"}, NodeClaimSpec)
    )
    template = {"spec": {"expireAfter": expiry}}
    pool = msgspec.convert({"spec": {"template": template}}, NodePool) if expiry else None
    assert expiration.date(old, pool) == (None if life is None else BORN + life)
