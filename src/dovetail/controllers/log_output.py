"""Where log lines go: `stdout`, `stderr` or files, several at once, as `--log-output-paths` names them.

A line that a path does not take (a full disk) goes to the error paths with the reason; logging never ends the process.
A closed pipe on standard output does: no line could be read any more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from dovetail.language import message
from dovetail.language.system_errors import system_error


class LogPathError(ValueError):
    """A path that cannot be written to, by name."""


def paths(text: str) -> tuple[str, ...]:
    """`stdout,/var/log/dovetail.log` as paths, each once, in order."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


class LogOutput:
    """Writes each line to every path. Files are opened once, and appended to."""

    def __init__(self, outputs: Sequence[str], errors: Sequence[str] = ("stderr",)) -> None:
        self._files: list[TextIO] = []
        self._outputs = [(path, self._stream("--log-output-paths", path)) for path in outputs]
        self._errors = [self._stream("--log-error-output-paths", path) for path in errors]

    def write(self, line: str) -> None:
        for path, stream in self._outputs:
            try:
                _write(stream(), line)
            except BrokenPipeError:
                raise
            except OSError as problem:
                self._report(f"log line not written to {path}: {problem.strerror}: {line}")

    def _report(self, text: str) -> None:
        for stream in self._errors:
            with suppress(OSError):
                _write(stream(), text)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _stream(self, flag: str, path: str) -> Callable[[], TextIO]:
        """Standard streams are looked up at each line: a caller may replace them."""
        if path == "stdout":
            return lambda: sys.stdout
        if path == "stderr":
            return lambda: sys.stderr
        try:
            file = Path(path.removeprefix("file://")).open("a", encoding="utf-8")  # noqa: SIM115 (closed by `close`)
        except OSError as problem:
            remedy = message("name stdout, stderr or a writable file")
            raise LogPathError(f"{flag}: {path}: {system_error(problem)}; {remedy}") from problem
        self._files.append(file)
        return lambda: file


def _write(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
