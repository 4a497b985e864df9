"""The first sync of a cluster: complete once every kind was listed, or is known to be unserved or forbidden."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.reflector import Reflector

#: How often, in seconds, it is checked whether the server serves a kind at all.
RECHECK_INTERVAL_S = 0.1


async def read(required: Iterable[Reflector[Any]], optional: Iterable[Reflector[Any]]) -> None:
    for reflector in required:
        await reflector.synced.wait()
    for reflector in optional:
        await _read_or_absent(reflector)


async def _read_or_absent(reflector: Reflector[Any]) -> None:
    """Wait until a kind has been listed, or the server has answered that it does not exist or is forbidden."""
    while not isinstance(reflector.failure, NotFound | Forbidden):
        try:
            async with asyncio.timeout(RECHECK_INTERVAL_S):
                await reflector.synced.wait()
                return
        except TimeoutError:
            continue
