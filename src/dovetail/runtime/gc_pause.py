"""Quiet: no garbage collection while a quick plan is made, and none of everything at any moment but a chosen one.

A plan makes many objects that live exactly as long as it does. Looking through all of a cluster's pods for garbage
in the middle of it, several times, finds nothing and takes a third of the time. A full look right after it takes as
long as the plan did; so a caller that plans again and again freezes what there is between two plans, when no pod waits.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_depth = 0
_was_on = False
#: So many collections of younger objects before everything is looked through: never by itself.
_NEVER = 1 << 30


class quiet:
    """Collection rests until the last one inside has left; it stays off if it was off.

    Leaving makes no object: with the first one that is made collection begins, and the caller has the plan by then.
    """

    def __enter__(self) -> None:
        global _depth, _was_on
        with _lock:
            if _depth == 0:
                _was_on = gc.isenabled()
                gc.disable()
            _depth += 1

    def __exit__(self, *_: object) -> None:
        global _depth
        with _lock:
            _depth -= 1
            if _depth == 0 and _was_on:
                gc.enable()


def busy() -> bool:
    """Whether a quick plan is being made."""
    return _depth > 0


def settle(thorough: bool = False) -> None:
    """Look for garbage now, and take what is left for lasting: until this is called again the collector skips it.

    What was taken for lasting before is looked through as well only where it is to be `thorough`.
    """
    if thorough:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextmanager
def settling() -> Iterator[None]:
    """Inside, everything is looked through when `settle` is called and at no other time."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    settle()
    try:
        yield
    finally:
        gc.set_threshold(*before)
