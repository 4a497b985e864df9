"""Loggers that load structlog with the first thing they say: it brings much along, and most runs say nothing."""

from __future__ import annotations

from typing import Any

_UNSAID_IN_QUIET = frozenset({"debug", "info", "warning"})
_quiet = False


def silence(on: bool = True) -> None:
    """Say nothing but errors from now on."""
    global _quiet
    _quiet = on


class Log:
    """A logger by name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        if _quiet and level in _UNSAID_IN_QUIET:
            return _hide_when_silenced
        import structlog

        return getattr(structlog.get_logger(self._name), level)


def _hide_when_silenced(event: str, **details: object) -> None:
    """What is not said in quiet."""
