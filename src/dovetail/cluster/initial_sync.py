"""The first reading of a cluster: over once every kind was listed, or is known not to be served or not ours to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.reflector import Reflector

#: How often, in seconds, it is asked whether the server has a kind at all.
LOOK = 0.1


async def read(required: Iterable[Reflector[Any]], optional: Iterable[Reflector[Any]]) -> None:
    for reflector in required:
        await reflector.synced.wait()
    for reflector in optional:
        await _read_or_absent(reflector)


async def _read_or_absent(reflector: Reflector[Any]) -> None:
    """Until a kind has been listed, or the server has said that it has no such kind or that we may not read it."""
    while not isinstance(reflector.failure, NotFound | Forbidden):
        try:
            async with asyncio.timeout(LOOK):
                await reflector.synced.wait()
                return
        except TimeoutError:
            continue
