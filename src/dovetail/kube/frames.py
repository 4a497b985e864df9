"""Watch streams cut into lines: chunks come as the network likes, an event ends with a newline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from dovetail.kube.errors import Disconnected


async def frames(stream: AsyncIterator[bytes], quiet: float | None = None) -> AsyncGenerator[bytes, None]:
    """The lines of `stream`, which is closed in the end. `quiet` seconds without a byte count as a dead peer."""
    rest = b""
    try:
        while True:
            try:
                async with asyncio.timeout(quiet):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                break
            except TimeoutError as problem:
                raise Disconnected(f"nothing heard for {quiet:g} s") from problem
            *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
            for line in lines:
                if line:
                    yield line
        if rest.strip():
            raise Disconnected("the stream ended in the middle of an event")
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
