"""A lab run, recorded as `dovetail record` does."""

from __future__ import annotations

from pathlib import Path

from dovetail.clock import run_virtual
from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.runner import Player, ScenarioOutcome
from dovetail.lab.scenario.schema import read
from dovetail.offline.recorder import Recorder, RecorderSettings
from dovetail.offline.recording import Writer
from dovetail.offline.recording.anonymity import Anonymiser

IDENTITY = b"recorded by test"


def record(scenario: Path, target: Path, seed: int = 7, *, anonymise: bool = False) -> ScenarioOutcome:
    """Play a scenario to its end and record it from its first moment on."""

    async def main() -> ScenarioOutcome:
        writers: list[Writer] = []

        async def recorder(lab: Lab) -> None:
            writer = Writer.create(target, lab.clock.now(), "lab", IDENTITY, anonymised=anonymise)
            writers.append(writer)
            anonymiser = Anonymiser(b"salt") if anonymise else None
            await Recorder(
                lab.kube, writer, anonymiser=anonymiser, settings=RecorderSettings(usage_interval_s=60.0)
            ).run()

        player = Player(read(scenario), scenario.parent, lambda line: None, seed, extras=[recorder])
        outcome = await player.run()
        writers[0].close()
        return outcome

    return run_virtual(main())
