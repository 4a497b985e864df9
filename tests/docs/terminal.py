"""Types the commands of a page into a shell, as its reader does, and compares what is printed with what the page shows.

A page's blocks share one folder (with the repository's examples and scenarios), one environment and one home, so that
`cd`, `export` and a lab that the page starts last until its end, and nothing outside is touched.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from scripts.markdown_pages import Block
from tests.clients.typed.normal import normal

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
COMMAND_TIMEOUT_S = 100
#: How long a command that only reads is repeated until it shows what the page shows, as a reader would wait.
SETTLE_TIMEOUT_S = 150
ELLIPSIS = "…"
#: What a lab of a test needs beside what its page says: no terminal, any port, instances that join soon, fixed names.
UP_OPTIONS = {"--detach": "", "--port": "0", "--boot": "2", "--seed": "7"}
_READS = re.compile(
    r"(dovetail )?kubectl (get|top|logs|describe|explain)"
    r"|dovetail (doctor(?! --(fix|collect))|explain|history|view|env)"
    r"|aws \S+ (describe|list|get)"
)
_VARYING = (
    (re.compile(r"\bip-\d+-\d+-\d+-\d+\."), "ip-N."),
    (re.compile(r"\b(i|d|subnet|sg|vpc|ami|lt|fleet)-[0-9a-z]{8,17}\b"), r"\1-ID"),
    (re.compile(r"\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b\d+ s more\b"), "N s more"),
    (re.compile(r"127\.0\.0\.1:\d+|<ip>:<port>"), "ADDRESS"),
    (re.compile(r"token=\w+"), "token=T"),
    (re.compile(r"(?<=[a-z]-)[2-9]{5}(?=\s|$)"), "<name>"),  # a random name of digits alone
)


class Command(NamedTuple):
    text: str
    shown: list[str]


def commands(block: Block) -> list[Command]:
    """The lines after `$ `, with their continuations, and what the page shows below each."""
    result: list[Command] = []
    open_line = False
    for line in block.text.splitlines():
        if line.startswith("$ "):
            result.append(Command(line[2:], []))
        elif open_line and result:
            last = result.pop()
            result.append(Command(f"{last.text}\n{line}", last.shown))
        elif result:
            result[-1].shown.append(line)
        else:
            raise AssertionError(f"line {block.line}: a console block begins with a command (`$ `)")
        open_line = line.endswith("\\") and not (result and result[-1].shown)
    return result


def comparable(text: str) -> list[str]:
    text = normal(text)
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def agrees(shown: list[str], printed: str) -> bool:
    """Whether the page shows what was printed; `…` stands for any characters, alone on its line for any lines."""
    lines = comparable("\n".join(shown))
    pattern = "".join(
        r"(?:.*\n)*?" if line == ELLIPSIS else f"{'.*'.join(re.escape(part) for part in line.split(ELLIPSIS))}\n"
        for line in lines
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in comparable(printed))) is not None


def without_comment(text: str) -> str:
    return re.sub(r"(?m)\s+# .*$", "", text)


class Terminal:
    """A shell whose environment and folder last from one command to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / ".state"
        self.work = folder / "work"
        self.work.mkdir()
        for name in ("charts", "examples", "scenarios"):
            (self.work / name).symlink_to(ROOT / name)
        kept = {name: os.environ[name] for name in ("DOVETAIL_CHROMIUM", "TMPDIR") if name in os.environ}
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        variables = {
            **kept,
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": cache,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "DOVETAIL_LANG": "en",
            "LANG": "C.UTF-8",
        }
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        self.state.write_text(f"{exports}cd {shlex.quote(str(self.work))}\n")
        self.has_lab = False

    def write(self, name: str, text: str) -> None:
        (self.work / name).write_text(text)

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        script = f'. {self.state}\n{text}\ncode=$?\n{{ export -p; echo cd "$PWD"; }} > {self.state}\nexit $code\n'
        return subprocess.run(
            ["bash", "-c", script],
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )

    def start_lab(self) -> None:
        """A lab for a page that does not start one itself."""
        self.type(Command("dovetail up", []))
        self.type(Command('eval "$(dovetail env)"', []))

    def type(self, command: Command) -> None:
        """Run a command of a page; it must succeed, or print what the page shows."""
        text = without_comment(command.text)
        if re.match(r"dovetail up\b", text):
            missing = [f"{name} {value}".strip() for name, value in UP_OPTIONS.items() if name not in text]
            text, self.has_lab = " ".join([text, *missing]), True
        end = time.monotonic() + (SETTLE_TIMEOUT_S if _READS.match(text) else 0)
        while True:
            done = self.run(text)
            if not command.shown:
                assert done.returncode == 0, f"$ {command.text}\n{done.stdout}"
                return
            if agrees(command.shown, done.stdout):
                return
            if time.monotonic() >= end:
                shown = "\n".join(command.shown)
                raise AssertionError(f"$ {command.text}\nthe page shows\n{shown}\nprinted was\n{done.stdout}")
            time.sleep(1)

    def close(self) -> None:
        if self.has_lab:
            self.run("dovetail down")
