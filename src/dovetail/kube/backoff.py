"""When a failed call is worth sending again, and after how long.

A server that says "later" (429, 503, or any answer with Retry-After) has not done the work: every verb may
be sent again. A broken connection is different: the work may have been done, so only verbs that can be
repeated without harm are. Nothing is retried past `attempts`; the caller then sees the last error.
"""

from __future__ import annotations

import msgspec

from dovetail.chance import Chance
from dovetail.kube.errors import ApiError, Disconnected, KubeError, TooManyRequests, Unavailable


def doubled(base: float, cap: float, failures: int) -> float:
    """The pause after the n-th failure in a row: twice as long each time, up to the cap, however often it fails."""
    return min(cap, base * 2.0 ** min(failures - 1, 60))


class Retries(msgspec.Struct, frozen=True):
    """How often and how long: exponential from `base` up to `cap` seconds, with jitter."""

    attempts: int = 5
    base: float = 0.25
    cap: float = 15.0

    def pause(self, failures: int, chance: Chance) -> float:
        """Seconds to wait after the n-th failure in a row (n from 1)."""
        return doubled(self.base, self.cap, failures) * (0.5 + chance.random())


#: For calls whose refusal is an answer in itself.
NEVER = Retries(attempts=1)


def worth_repeating(error: KubeError, *, idempotent: bool) -> bool:
    if isinstance(error, Disconnected):
        return idempotent or not error.sent
    if isinstance(error, TooManyRequests):
        return True
    if isinstance(error, ApiError):
        passing = isinstance(error, Unavailable) and not error.has_cause("ResourceVersionTooLarge")
        return error.retry_after is not None or (idempotent and passing)
    return False
