"""Shows where the lab answers differently from the recordings: `python -m tests.conformance.differ [topic…]`.

`-q` prints only the count of each topic; `--known` writes the differences of all topics to known.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from dovetail.clock import run_virtual
from tests.conformance.backends import lab_in_process
from tests.conformance.corpus import topics
from tests.conformance.record import RECORDINGS, load
from tests.conformance.runner import run_topic


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """One line a difference: where, what the real one says, what we say."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            if key not in ours:
                yield f"{path}.{key}: missing, should be {_short(theirs[key])}"
            elif key not in theirs:
                yield f"{path}.{key}: should not be there: {_short(ours[key])}"
            else:
                yield from differences(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}:\n      real {_short(theirs)}\n      ours {_short(ours)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 600 else text[:600] + "…"


async def _ours(name: str) -> list[dict[str, Any]]:
    async with lab_in_process() as (transport, webhooks):
        return await run_topic(transport, name, topics()[name], webhooks)


def report(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], *, quiet: bool = False) -> int:
    same = 0
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        found = list(differences(mine, other))
        if not found:
            same += 1
            continue
        if quiet:
            continue
        print(f"  {name} #{number} {other['step']}")
        for line in found[:12]:
            print(f"    {line}")
    print(f"{name}: {same}/{len(theirs)}", flush=True)
    return same


def main(arguments: list[str]) -> None:
    quiet = "-q" in arguments
    if "--known" in arguments and len(arguments) > 1 + quiet:
        sys.exit("--known writes all topics: name none")
    names = [one for one in arguments if not one.startswith("-")] or list(topics())
    total = alike = 0
    known: dict[str, dict[str, list[str]]] = {}
    for name in names:
        if not (RECORDINGS / f"{name}.json").exists():
            print(f"{name}: not recorded")
            continue
        theirs = load(name)
        total += len(theirs)
        try:
            ours = run_virtual(_ours(name))
        except Exception as problem:  # the whole report is worth more than the first failure
            print(f"{name}: broke: {type(problem).__name__}: {problem}")
            continue
        alike += report(name, ours, theirs, quiet=quiet)
        steps = {
            str(number): lines
            for number, (mine, other) in enumerate(zip(ours, theirs, strict=True))
            if (lines := list(differences(mine, other)))
        }
        if steps:
            known[name] = steps
    print(f"alike: {alike} of {total} ({alike / max(total, 1):.1%})")
    if "--known" in arguments:
        text = json.dumps(known, ensure_ascii=False, indent=2)
        (RECORDINGS.parent / "known.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
