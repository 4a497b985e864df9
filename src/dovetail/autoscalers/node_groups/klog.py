"""Log lines in the form that people grep: severity, date, source, message, as Go programs of Kubernetes write them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from dovetail.clock import Clock


class Klog:
    """`verbosity` as --v has it: lines above it are not written."""

    def __init__(self, clock: Clock, verbosity: int = 0, write: Callable[[str], object] | None = None) -> None:
        self._clock = clock
        self.verbosity = verbosity
        self._write = write or _print
        self._traced: set[tuple[str, str]] = set()

    def info(self, source: str, message: str, level: int = 0) -> None:
        if level <= self.verbosity:
            self._line("I", source, message)

    def warning(self, source: str, message: str) -> None:
        self._line("W", source, message)

    def error(self, source: str, message: str) -> None:
        self._line("E", source, message)

    def unexpected(self, source: str, message: str, problem: Exception) -> None:
        """An error that nothing here explains: its traceback is written the first time."""
        self.error(source, f"{message}: {type(problem).__name__}: {problem}")
        frames = traceback.extract_tb(problem.__traceback__)
        place = type(problem).__name__, f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        if place not in self._traced:
            self._traced.add(place)
            for line in "".join(traceback.format_exception(problem)).splitlines():
                self.error(source, line)

    def _line(self, severity: str, source: str, message: str) -> None:
        now = self._clock.now()
        self._write(f"{severity}{now:%m%d %H:%M:%S.%f}       1 {source}] {message}")


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
