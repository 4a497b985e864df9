"""The lab answers as the real API server does: the same requests, the same answers, topic by topic.

`recordings/` holds what a real 1.36.3 server said; `known.json` the steps where the lab is known to say something
else, and what it says. A new difference fails, a known one that changes or vanishes fails, and so does a real server
that disagrees with a recording.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
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
from tests.conformance.scripted_webhooks import ScriptedWebhooks

TOPICS = topics()
#: By topic and step the expected differences.
KNOWN: dict[str, dict[str, list[str]]] = json.loads((Path(__file__).parent / "known.json").read_text())
#: A watch's seconds pass faster than the wall's, and still leave time for real sockets.
SPEED = 4.0


def unexpected_differences(
    topic: str, ours: list[dict[str, Any]], known: Mapping[str, list[str]] | None = None
) -> list[str]:
    """Steps that differ otherwise than `known` says, those that are expected to differ and do not included."""
    theirs = load(topic)
    assert [answer["step"] for answer in ours] == [answer["step"] for answer in theirs], (
        "the corpus changed: record it again"
    )
    expected = KNOWN.get(topic, {}) if known is None else known
    unexpected = []
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        lines = list(differences(mine, other))
        if lines != expected.get(str(number), []):
            text = "\n  ".join(lines[:5]) or "answers like the real server: remove it from known.json"
            unexpected.append(f"#{number} {other['step']}\n  {text}")
    return unexpected


@pytest.mark.parametrize("topic", TOPICS)
def test_the_lab_in_process_answers_like_the_real_server(topic: str) -> None:
    async def main() -> list[dict[str, Any]]:
        async with lab_in_process() as (transport, webhooks):
            return await run_topic(transport, topic, TOPICS[topic], webhooks)

    assert unexpected_differences(topic, run_virtual(main())) == []


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in lines.TOPICS])
def test_the_lab_over_http_answers_like_the_real_server(topic: str) -> None:
    async def main() -> list[dict[str, Any]]:
        async with lab_over_http() as (transport, webhooks):
            return await run_topic(transport, topic, TOPICS[topic], webhooks)

    assert unexpected_differences(topic, run_scaled(main(), SPEED)) == []


async def ask_a_real_server(names: Iterable[str]) -> dict[str, list[str]]:
    """The topics on which a fresh real server differs from its recordings, with how."""
    found = {}
    async with RealControlPlane() as plane, ScriptedWebhooks().serve() as webhooks:
        transport = plane.transport()
        for topic in names:
            ours = await run_topic(transport, topic, TOPICS[topic], webhooks)
            lines = unexpected_differences(topic, ours, known={})
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


def test_a_known_difference_that_vanishes_or_changes_is_reported() -> None:
    topic = next(iter(KNOWN))
    step = next(iter(KNOWN[topic]))
    recorded = load(topic)
    vanished = unexpected_differences(topic, recorded)
    assert len(vanished) == len(KNOWN[topic]) and "remove it from known.json" in vanished[0]
    other = [dict(answer) for answer in recorded]
    other[int(step)]["code"] = 0
    changed = unexpected_differences(topic, other)
    assert len(changed) == len(KNOWN[topic]) and "remove it" not in changed[0]
