"""Log lines: JSON, with Karpenter's messages, level names and field names, because operators search for them.

Lines written during a reconciliation carry its id and the object it is about (`reconciling`).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from dovetail import __version__
from dovetail.clock import Clock
from dovetail.kube.resources import Resource
from dovetail.model.quantity import format_resources

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
#: Level names as zap writes them.
_NAMES = {"warning": "WARN", "exception": "ERROR"}
#: The most characters of an HTML page that are logged: a proxy's error page has its message in the title.
MAX_HTML_CHARS = 200
_PAGE = re.compile(r"<!doctype html|<html", re.IGNORECASE)
_TITLE = re.compile(r"<(?:title|h1)[^>]*>(.*?)</", re.IGNORECASE | re.DOTALL)
_TAGS = re.compile(r"<[^>]*>|\s+")

#: The reconciliation that is under way in this task, as log fields.
_reconciliation: ContextVar[Mapping[str, Any]] = ContextVar("reconciliation", default={})  # noqa: B039 (never changed)


def logger(
    clock: Clock, write: Callable[[str], object] | None = None, level: str = "info", encoding: str = "json"
) -> FilteringBoundLogger:
    """A logger that hands each line to `write` (standard output by default)."""
    made = structlog.wrap_logger(
        _Lines(write or _print),
        processors=_processors(clock, encoding),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, made)


def configure(
    clock: Clock, level: str = "info", write: Callable[[str], object] | None = None, encoding: str = "json"
) -> None:
    """The same form for every logger of the process, those of the Kubernetes client and the cloud included."""
    structlog.configure(
        processors=_processors(clock, encoding),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Lines(write or _print),
        cache_logger_on_first_use=False,
    )


@contextmanager
def reconciling(
    controller: str, identity: str, name: str = "", resource: Resource | None = None, namespace: str = ""
) -> Iterator[str]:
    """Lines written inside carry the controller, the object and the reconciliation's `identity`, which is yielded."""
    fields: dict[str, Any] = {"controller": controller}
    if resource is not None:
        fields |= {"controllerGroup": resource.group, "controllerKind": resource.kind}
        fields[resource.kind] = ref(name, namespace)
    token = _reconciliation.set({**fields, "namespace": namespace, "name": name, "reconcileID": identity})
    try:
        yield identity
    finally:
        _reconciliation.reset(token)


def _processors(clock: Clock, encoding: str) -> list[Processor]:
    def stamped(_: Any, method: str, event: EventDict) -> EventDict:
        moment = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = _NAMES.get(method, method.upper())
        head: dict[str, Any] = {"level": level, "time": moment, "logger": "controller", "message": event.pop("event")}
        fields = {name: _shortened(value) for name, value in event.items()}
        return {**head, "commit": __version__, **_reconciliation.get(), **fields}

    def as_json(_: Any, __: str, event: EventDict) -> str:
        return _json(event)

    def as_console(_: Any, __: str, event: EventDict) -> str:
        head = [str(event.pop(name)) for name in ("time", "level", "logger", "message")]
        trace = event.pop("exception", None)
        return "\t".join((*head, _json(event))) + (f"\n{trace}" if trace else "")

    return [structlog.processors.format_exc_info, stamped, as_console if encoding == "console" else as_json]


def _json(event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _shortened(value: Any) -> Any:
    """An HTML page, which a proxy or a load balancer answers with, by its title."""
    if not isinstance(value, str) or len(value) <= MAX_HTML_CHARS:
        return value
    page = _PAGE.search(value)
    if page is None:
        return value
    title = _TITLE.search(value, page.start())
    text = _TAGS.sub(" ", title.group(1) if title else value[page.start() :]).strip()
    return f"{value[: page.start()]}[HTML page: {text[:MAX_HTML_CHARS]}]"


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
