"""Recordings: bytes of a recorded cluster per event, and how fast it is written, read and sought in.

`python -m bench.recording [scenario [hours]]` plays a part of `scenarios/large-autoscaled-day.yaml` (or another) with a
recorder beside it, and says what a day of it would take.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from dovetail.cli.terminal import quiet_logs
from dovetail.clock import Clock, run_virtual
from dovetail.lab.cluster import Lab
from dovetail.lab.durations import Seconds
from dovetail.lab.scenario.runner import Player
from dovetail.lab.scenario.schema import Scenario, read
from dovetail.offline.recorder import Recorder
from dovetail.offline.recording import Writer
from dovetail.offline.recording import read as read_recording

SCENARIO = Path(__file__).parent.parent / "scenarios" / "large-autoscaled-day.yaml"
HOUR, DAY_H = 3600.0, 24.0


async def record(scenario: Scenario, folder: Path, target: Path) -> int:
    """Events that were recorded."""
    written: list[tuple[Writer, Clock]] = []

    async def recorder(lab: Lab) -> None:
        written.append((Writer.create(target, lab.clock.now(), "bench", b"bench recordings"), lab.clock))
        await Recorder(lab.kube, written[0][0]).run()

    await Player(scenario, folder, lambda line: None, scenario.seed, extras=[recorder]).run()
    writer, clock = written[0]
    writer.close(clock.now())
    return writer.events


def main() -> None:
    parser = argparse.ArgumentParser(description="Record a part of a large day, and read it again.")
    parser.add_argument("scenario", nargs="?", type=Path, default=SCENARIO)
    parser.add_argument("hours", nargs="?", type=float, default=2.0)
    asked = parser.parse_args()
    scenario = msgspec.structs.replace(read(asked.scenario), duration=Seconds(asked.hours * HOUR))
    quiet_logs()
    gc.set_threshold(100_000, 50, 1000)
    with TemporaryDirectory() as name:
        target = Path(name) / "bench.dvrec"
        began = time.process_time()
        events = run_virtual(record(scenario, asked.scenario.parent, target))
        took = time.process_time() - began
        size = target.stat().st_size
        print(
            f"{asked.hours:g} h: {events:,} events, {size / 1e6:.2f} MB, {size / max(1, events):.1f} bytes per event; "
            f"a day at this rate {size / 1e6 * DAY_H / asked.hours:.1f} MB; "
            f"{asked.hours * HOUR / took:,.0f} simulated seconds per processor second with the recorder"
        )
        began = time.process_time()
        recording = read_recording(target)
        count = sum(1 for _ in recording.events(recording.start, recording.end))
        read_s = time.process_time() - began
        began = time.process_time()
        middle = recording.start + (recording.end - recording.start) / 2
        objects = recording.objects_at(middle)
        seek_s = time.process_time() - began
        print(
            f"read {count:,} events in {read_s:.2f} s ({count / read_s:,.0f}/s); "
            f"{len(objects):,} objects of the middle in {seek_s:.2f} s"
        )


if __name__ == "__main__":
    main()
