"""The manifests a command is given with -f: files, folders of them, or - for the standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dovetail.errors import Problem

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
        raise Problem(f"{name}: {error.strerror or error}; nothing was written to it") from error


def _within(folder: Path) -> list[Path]:
    files = sorted(each for each in folder.rglob("*") if each.suffix in _ENDINGS)
    if not files:
        raise Problem(f"{folder}: no file in it ends in {', '.join(_ENDINGS)}; name one that has manifests")
    return files


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(f"{file}: {error.strerror or error}; name a file, a folder, or - for the input") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{file}: not UTF-8 text at byte {error.start}; save it as UTF-8") from error
