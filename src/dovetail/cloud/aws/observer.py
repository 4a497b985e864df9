"""Who hears of calls, refusals, failed terminations and batches: the metrics, where there are any."""

from __future__ import annotations

from typing import Protocol

from dovetail.cloud.aws.client import CallRecord


class CallObserver(Protocol):
    def call(self, record: CallRecord) -> None: ...

    def launch_refused(self, zone: str, zone_id: str, capacity_type: str, reason: str) -> None: ...

    def termination_failed(self, zone: str, zone_id: str) -> None: ...

    def batch(self, batcher: str, size: int, seconds: float) -> None: ...


class _Silent:
    def call(self, record: CallRecord) -> None:
        return None

    def launch_refused(self, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
        return None

    def termination_failed(self, zone: str, zone_id: str) -> None:
        return None

    def batch(self, batcher: str, size: int, seconds: float) -> None:
        return None


SILENT: CallObserver = _Silent()
