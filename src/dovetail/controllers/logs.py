"""Log lines: JSON, with Karpenter's messages and field names, because people grep for them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from dovetail import __version__
from dovetail.clock import Clock
from dovetail.model.quantity import format_resources

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}


def logger(clock: Clock, write: Callable[[str], object] | None = None, level: str = "info") -> FilteringBoundLogger:
    """A logger that hands each line to `write` (standard output by default)."""
    made = structlog.wrap_logger(
        _Lines(write or _print),
        processors=_processors(clock),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.INFO)),
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, made)


def configure(clock: Clock, level: str = "info") -> None:
    """The same form for every logger of the process, those of the rooms above included."""
    structlog.configure(
        processors=_processors(clock),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.INFO)),
        logger_factory=lambda *_: _Lines(_print),
        cache_logger_on_first_use=False,
    )


def _processors(clock: Clock) -> list[Processor]:
    def stamped(_: Any, method: str, event: EventDict) -> EventDict:
        moment = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name = "ERROR" if method == "exception" else method.upper()
        head: dict[str, Any] = {"level": name, "time": moment, "logger": "controller", "message": event.pop("event")}
        return {**head, "commit": __version__, **event}

    def rendered(_: Any, __: str, event: EventDict) -> str:
        return msgspec.json.encode(event, enc_hook=str).decode()

    return [structlog.processors.format_exc_info, stamped, rendered]


def ref(name: str, namespace: str = "") -> dict[str, str]:
    """An object as Karpenter's lines show it."""
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def amounts(resources: Mapping[str, int]) -> dict[str, str]:
    return format_resources(resources)


def some(items: list[str], most: int = 5) -> str:
    """A few of many: `a, b, c and 12 other(s)`."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} other(s)" if len(items) > most else shown


class _Lines:
    """What structlog calls at the end: one method a level, all the same."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.debug = self.info = self.warning = self.error = self.exception = self.critical = write
        self.msg = self.log = write


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
