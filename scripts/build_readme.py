"""Writes the output of the commands in both READMEs that need neither a cluster nor a cloud, as they answer today.

python scripts/build_readme.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from click.testing import CliRunner

from dovetail.cli.main import main

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.ko.md")
#: A command of ours that answers from files alone, its comment, and what it printed.
SCREEN = re.compile(r"(?m)^\$ dovetail ((?:plan|lint|simulate) [^#\n]*?)( *#[^\n]*)?\n((?:(?!\$ |```)[^\n]*\n)*)")


def answer(line: str) -> str:
    return CliRunner().invoke(main, line.split()).output


def screen(match: re.Match[str]) -> str:
    return f"$ dovetail {match[1]}{match[2] or ''}\n{answer(match[1])}"


if __name__ == "__main__":
    os.chdir(ROOT)
    os.environ["COLUMNS"] = "100"
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        os.environ.pop(name, None)
    for readme in READMES:
        path = ROOT / readme
        path.write_text(SCREEN.sub(screen, path.read_text()))
