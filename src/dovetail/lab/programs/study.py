"""`dovetail compare` in a pod: a process of its own, as it takes a processor for minutes.

Its mounts are folders that live as long as the container; ConfigMaps are in them as files.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.lab.programs.context import ProgramContext, ProgramExit

_MAIN = "from dovetail.cli.main import main; main()"
#: A run is one line of the log.
LONGEST_LINE_BYTES = 64 * 2**20


async def run_compare(context: ProgramContext) -> None:
    """Until the study is done."""
    with TemporaryDirectory(prefix="dovetail-pod-") as name:
        folders = _write_mounts(Path(name), context.mounts)
        words = [_in_folder(word, folders) for word in context.arguments]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _MAIN, "compare", *words),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=LONGEST_LINE_BYTES,
        )
        try:
            assert process.stdout is not None
            async for line in process.stdout:
                context.write(line.decode(errors="replace").rstrip("\n"))
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if code:
        raise ProgramExit(code)


def _write_mounts(root: Path, mounts: Mapping[str, Mapping[str, str]]) -> dict[str, Path]:
    """A folder for each mount, by its path in the container."""
    folders: dict[str, Path] = {}
    for number, (path, files) in enumerate(mounts.items()):
        folders[path] = root / str(number)
        folders[path].mkdir()
        for name, content in files.items():
            (folders[path] / name).write_text(content, encoding="utf-8")
    return folders


def _in_folder(word: str, folders: Mapping[str, Path]) -> str:
    """A path of the container as a path of this computer."""
    for path, folder in folders.items():
        if word == path or word.startswith(path.rstrip("/") + "/"):
            return f"{folder}{word.removeprefix(path.rstrip('/'))}"
    return word
