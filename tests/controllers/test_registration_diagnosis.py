"""NodeClaims whose instance does not join are checked each by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from dovetail.chance import Chance
from dovetail.clock import run_virtual
from dovetail.cloud.provider import CloudError, Remedy
from dovetail.controllers.nodeclaim.registration_diagnosis import RegistrationDiagnosis

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Cloud:
    """Fails for one instance, and has the other."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get(self, provider_id: str) -> None:
        self.asked.append(provider_id)
        if provider_id == "aws:///a/i-1":
            raise CloudError("Unauthorized", "denied", Remedy.OPERATOR)


def test_one_nodeclaim_that_cannot_be_checked_keeps_no_other_from_its_check() -> None:
    launched = SimpleNamespace(status="True", last_transition_time=NOW - timedelta(seconds=30))
    claims = [
        SimpleNamespace(name=name, status=SimpleNamespace(provider_id=f"aws:///a/{name}"), condition=lambda _: launched)
        for name in ("i-1", "i-2")
    ]
    lines: list[dict[str, Any]] = []
    cloud = Cloud()
    context: Any = SimpleNamespace(
        chance=Chance(0),
        clock=SimpleNamespace(now=lambda: NOW),
        cloud=cloud,
        log=SimpleNamespace(error=lambda message, **fields: lines.append(fields)),
        cluster_state=SimpleNamespace(claims=SimpleNamespace(store=SimpleNamespace(by=lambda *_: claims))),
    )
    run_virtual(RegistrationDiagnosis(context).check())
    assert cloud.asked == ["aws:///a/i-1", "aws:///a/i-2"]
    assert [line["error"] for line in lines] == ["denied"]
