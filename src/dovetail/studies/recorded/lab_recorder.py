"""A recorder as a part of the lab: the run of a scenario as a recording, in the lab's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dovetail.clock import Clock
from dovetail.lab.cluster import Lab
from dovetail.offline.recorded_prices import PriceChange
from dovetail.offline.recorder import Recorder, RecorderSettings
from dovetail.offline.recording import OfferingKey, RecordedPrice, Writer


class LabRecording(msgspec.Struct, frozen=True, kw_only=True):
    """Which file, and what its header says. `identity` is 16 bytes; the same run gives the same bytes."""

    path: Path
    cluster: str
    identity: bytes
    source: str
    #: Prices that are known before the first node is seen.
    prices: Mapping[OfferingKey, RecordedPrice] = {}
    #: How prices change, in seconds after the lab's start.
    price_changes: tuple[PriceChange, ...] = ()
    settings: RecorderSettings = RecorderSettings()


class LabRecorder:
    """`run` is an extra of a scenario's player: it records until the lab ends."""

    def __init__(self, recording: LabRecording) -> None:
        self._recording = recording

    async def run(self, lab: Lab) -> None:
        recording = self._recording
        writer = Writer.create(
            recording.path, lab.clock.now(), recording.cluster, recording.identity, source=recording.source
        )
        try:
            for key, price in recording.prices.items():
                writer.price(lab.clock.now(), key, price.dollars, price.source)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._change_prices(writer, lab.clock), name="recorded prices")
                tasks.create_task(Recorder(lab.kube, writer, settings=recording.settings).run(), name="recorder")
        finally:
            writer.close(lab.clock.now())

    async def _change_prices(self, writer: Writer, clock: Clock) -> None:
        start = clock.monotonic()
        for change in self._recording.price_changes:
            await asyncio.sleep(max(0.0, start + change.at - clock.monotonic()))
            writer.price(clock.now(), change.key, change.price.dollars, change.price.source)
