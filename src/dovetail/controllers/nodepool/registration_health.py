"""Registration health of a NodePool: the last four outcomes of launches and registrations.

Two failures among them make the NodePool unhealthy. It is information for operators and for safe mode; planning
does not use it. A change of the NodePool or its NodeClass resets it.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail.language import source
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Condition

SLOTS, TOO_MANY = 4, 2


class RegistrationHealth:
    """Outcomes by NodePool name, newest last, and the failure that is shown."""

    def __init__(self) -> None:
        self._outcomes: dict[str, list[bool]] = {}
        self._why: dict[str, tuple[str, str]] = {}
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def note(self, claim: NodeClaim, joined: bool, launched: Condition | None = None) -> None:
        pool = claim.node_pool
        if not pool:
            return
        self._outcomes[pool] = [*self._outcomes.get(pool, ()), joined][-SLOTS:]
        if not joined and launched is not None and launched.status != "True":
            self._why[pool] = (launched.reason, launched.message)
        elif not joined:
            self._why[pool] = ("RegistrationFailed", source("Failed to register node"))
        for listener in self._listeners:
            listener(pool)

    def status(self, pool: str) -> bool | None:
        """True, False, or None while nothing is known."""
        outcomes = self._outcomes.get(pool)
        return outcomes.count(False) < TOO_MANY if outcomes else None

    def why(self, pool: str) -> tuple[str, str]:
        """Reason and message of the latest failure."""
        return self._why.get(pool, ("RegistrationFailed", "Failed to register node"))

    def reset(self, pool: str, status: bool | None = None) -> None:
        """Start anew, from the condition of a previous process if there is one."""
        self._outcomes[pool] = [] if status is None else [status] * (1 if status else TOO_MANY)

    def known(self, pool: str) -> bool:
        return pool in self._outcomes
