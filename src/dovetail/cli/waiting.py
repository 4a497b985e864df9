"""No silent waits: what takes a while says so on a terminal, and leaves no trace once it is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Shows the text, moving, on the standard error while the block runs; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
