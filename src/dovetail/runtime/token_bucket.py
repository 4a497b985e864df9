"""A token bucket: so many at once, then so many a second. Every rate limit of ours keeps its tokens in one.

It is pure: the time comes in, and the caller waits or refuses. A limit that refuses asks `take`; a limit that waits
asks `spend`, which also gives away tokens that are not there yet, so that callers are served in the order they came.
"""

from __future__ import annotations

import msgspec


class TokenBucket(msgspec.Struct):
    """At most `size` tokens; `rate` of them come back each second. `left` is how many there were at `filled_s`."""

    size: float
    rate: float
    left: float
    filled_s: float

    @classmethod
    def full(cls, size: float, rate: float, now: float) -> TokenBucket:
        return cls(size, rate, size, now)

    def take(self, now: float) -> bool:
        """Whether there is a token; it is taken."""
        self._fill(now)
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def pause(self, now: float, count: float = 1.0) -> float:
        """Seconds until there are `count` tokens, if nothing else takes them."""
        self._fill(now)
        return max(0.0, (count - self.left) / self.rate)

    def spend(self, now: float, count: float = 1.0) -> float:
        """Take `count` tokens, there or not; the seconds until they are."""
        pause = self.pause(now, count)
        self.left -= count
        return pause

    def drain(self, now: float) -> None:
        """Nothing is left: others took more than we knew of."""
        self._fill(now)
        self.left = min(self.left, 0.0)

    def _fill(self, now: float) -> None:
        self.left = min(self.size, self.left + (now - self.filled_s) * self.rate)
        self.filled_s = now
