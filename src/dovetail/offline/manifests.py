"""The manifests a command is given with -f: files, folders of them, or - for the standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error

STDIN = "<stdin>"
_ENDINGS = (".yaml", ".yml", ".json")


def texts(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The name and the text of each file, a folder's in the order of their names."""
    for name in names:
        if name == "-":
            yield STDIN, sys.stdin.read()
            continue
        path = Path(name)
        for file in _within(path) if path.is_dir() else [path]:
            yield str(file), _text(file)


def write(name: str, text: str) -> None:
    """Put a text back into its file."""
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            message("{name}: {system_error}; nothing was written to it", name=name, system_error=system_error(error))
        ) from error


def _within(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in _ENDINGS)
    if not files:
        raise UserError(
            message(
                "{folder}: no file in it ends in {endings}; name one that has manifests",
                folder=folder,
                endings=", ".join(_ENDINGS),
            )
        )
    return files


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            message(
                "{file}: {system_error}; name a file, a folder, or - for the input",
                file=file,
                system_error=system_error(error),
            )
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            message("{file}: not UTF-8 text at byte {start}; save it as UTF-8", file=file, start=error.start)
        ) from error
