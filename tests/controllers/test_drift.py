"""Drift that follows from the objects alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.controllers.disruption.drift import REQUIREMENTS, static
from dovetail.model.kinds import NodeClaim, NodePool

CLAIM = msgspec.convert({"metadata": {"labels": {"team": "shop", "size": "8"}}}, NodeClaim)


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "drifted"),
    [
        ([term("team", "In", "shop", "mail")], False),
        ([term("team", "In", "mail")], True),
        ([term("size", "Gt", "4"), term("size", "Lt", "9")], False),
        ([term("size", "Gt", "4"), term("size", "Lt", "8")], True),
        ([term("other", "Exists")], True),
        ([term("other", "Lt", "9")], True),
        ([term("other", "NotIn", "a")], False),
        ([term("other", "NotIn", "a"), term("other", "Exists")], False),
        ([term("team", "DoesNotExist")], True),
    ],
)
def test_a_nodeclaim_drifts_when_it_no_longer_meets_the_requirements_of_its_nodepool(terms: Any, drifted: bool) -> None:
    """The requirements of a label count together, as in a launch."""
    pool = msgspec.convert({"spec": {"template": {"spec": {"requirements": terms}}}}, NodePool)
    assert static(CLAIM, pool) == (REQUIREMENTS if drifted else None)
