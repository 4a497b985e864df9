"""What commands share of the terminal: quiet logs, shown progress, and programs that run until they are stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


def quiet_logs(*, programs: bool = False) -> None:
    """Print errors alone. With `programs` what programs in pods say is kept: the lab hands it to their own logs."""
    import logging

    import structlog

    from dovetail.kube import log

    log.silence(not programs)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def printable(text: str) -> str:
    """A message with what a file put into it: control characters would act on the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


# No silent waits: what takes a while says so on a terminal, and leaves no trace once it is over.


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Shows the text, moving, on the standard error while the block runs; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """As `waiting`, with `{}` in the text for the step that is under way; each step replaces the one before."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status(text.format("…")) as status:
        yield lambda step: status.update(text.format(step))


async def until_stopped(program: Coroutine[Any, Any, None]) -> None:
    """Run the program to its end, or until SIGINT or SIGTERM, which cancel it: an ordinary end, no error."""
    import asyncio
    import signal

    running = asyncio.ensure_future(program)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        return
