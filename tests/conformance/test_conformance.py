"""The lab answers as the real API server does: the same requests, the same answers, topic by topic.

`recordings/` holds what a real 1.36.3 server said; `known.json` the steps where the lab is known to say something
else. A topic may only get better: a new difference fails, and so does a real server that disagrees with a recording.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dovetail.clock import run_scaled, run_virtual
from dovetail.lab.real_control_plane import RealControlPlane
from tests.conformance.backends import lab_in_process, lab_over_http
from tests.conformance.corpus import lines, topics
from tests.conformance.differ import differences
from tests.conformance.record import load
from tests.conformance.runner import run_topic

TOPICS = topics()
KNOWN: dict[str, list[int]] = json.loads((Path(__file__).parent / "known.json").read_text())
#: A watch's seconds pass faster than the wall's, and still leave time for real sockets.
SPEED = 4.0


def new_differences(topic: str, ours: list[dict[str, Any]], known: bool = True) -> list[str]:
    theirs = load(topic)
    assert [one["step"] for one in ours] == [one["step"] for one in theirs], "the corpus changed: record it again"
    allowed = KNOWN.get(topic, ()) if known else ()
    found = []
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        lines = list(differences(mine, other))
        if lines and number not in allowed:
            found.append(f"#{number} {other['step']}\n  " + "\n  ".join(lines[:5]))
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_the_lab_in_process_answers_like_the_real_server(topic: str) -> None:
    async def main() -> list[dict[str, Any]]:
        async with lab_in_process() as transport:
            return await run_topic(transport, topic, TOPICS[topic])

    assert new_differences(topic, run_virtual(main())) == []


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in lines.TOPICS])
def test_the_lab_over_http_answers_like_the_real_server(topic: str) -> None:
    async def main() -> list[dict[str, Any]]:
        async with lab_over_http() as transport:
            return await run_topic(transport, topic, TOPICS[topic])

    assert new_differences(topic, run_scaled(main(), SPEED)) == []


async def ask_a_real_server(names: Iterable[str]) -> dict[str, list[str]]:
    """The topics on which a fresh real server differs from its recordings, with how."""
    found = {}
    async with RealControlPlane() as plane:
        transport = plane.transport()
        for topic in names:
            lines = new_differences(topic, await run_topic(transport, topic, TOPICS[topic]), known=False)
            if lines:
                found[topic] = lines
        await transport.close()
    return found


@pytest.mark.kubernetes
@pytest.mark.timeout(1200)
def test_the_real_server_still_says_what_was_recorded() -> None:
    """Its background loops race with some requests, so a topic that differs is asked again: a true change stays."""
    found = asyncio.run(ask_a_real_server(TOPICS))
    if found:
        found = asyncio.run(ask_a_real_server(found))
    assert found == {}
