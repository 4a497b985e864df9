"""Log lines in the form that people grep: severity, date, source, message, as Go programs of Kubernetes write them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from dovetail.clock import Clock


class Klog:
    """`verbosity` as --v has it: lines above it are not written."""

    def __init__(self, clock: Clock, verbosity: int = 0, write: Callable[[str], object] | None = None) -> None:
        self._clock = clock
        self.verbosity = verbosity
        self._write = write or _print

    def info(self, source: str, message: str, level: int = 0) -> None:
        if level <= self.verbosity:
            self._line("I", source, message)

    def warning(self, source: str, message: str) -> None:
        self._line("W", source, message)

    def error(self, source: str, message: str) -> None:
        self._line("E", source, message)

    def _line(self, severity: str, source: str, message: str) -> None:
        now = self._clock.now()
        self._write(f"{severity}{now:%m%d %H:%M:%S.%f}       1 {source}] {message}")


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
