"""Records the corpus from a real control plane: `python -m tests.conformance.record [topic…]`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dovetail.lab.real_control_plane import RealControlPlane
from tests.conformance.corpus import topics
from tests.conformance.runner import run_topic
from tests.conformance.scripted_webhooks import ScriptedWebhooks

RECORDINGS = Path(__file__).parent / "recordings"


def load(topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RECORDINGS / f"{topic}.json").read_text())
    return found


def save(topic: str, answers: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) for answer in answers)
    (RECORDINGS / f"{topic}.json").write_text(f"[\n{lines}\n]\n")


async def main(names: list[str]) -> None:
    RECORDINGS.mkdir(exist_ok=True)
    everything = topics()
    async with RealControlPlane() as plane, ScriptedWebhooks().serve() as webhooks:
        transport = plane.transport()
        for name in names or everything:
            answers = await run_topic(transport, name, everything[name], webhooks)
            save(name, answers)
            print(f"{name}: {len(answers)} answers", flush=True)
        await transport.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
