"""Ages are the lab's, for every client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.transport import LAB_TIME, Request, Response
from dovetail.lab.wall_clock_ages import WallClockAges, resumed

WALL = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
POD = (
    b'{"creationTimestamp":"2026-01-01T00:50:00Z","annotations":{"x/restartedAt":"2026-01-01T00:00:40Z"},'
    b'"eventTime":"2026-01-01T00:55:00.123456Z","startedAt":"2026-01-01T00:59:59Z","note":"2026-01-01T00:50:00Z"}'
)


class Fixed:
    """Answers every request with the same pod, at once and in frames."""

    address = ""

    async def handle(self, request: Request) -> Response:
        return Response(status=200, headers={}, body=POD, stream=self._frames())

    async def _frames(self) -> AsyncIterator[bytes]:
        yield POD


def bodies(command: str) -> tuple[bytes, bytes]:
    """The body and the stream a command reads, an hour into a lab that has run for a minute of the wall clock."""

    async def scene() -> tuple[bytes, bytes]:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        await asyncio.sleep(timedelta(hours=1).total_seconds())
        asked = Request(method="GET", path="/", headers={"kubectl-command": command})
        answer = await WallClockAges(Fixed(), clock, lambda: WALL).handle(asked)
        assert answer.stream is not None and answer.headers[LAB_TIME] == "Thu, 01 Jan 2026 01:00:00 GMT"
        assert answer.headers["date"] == "Thu, 01 Jan 2026 00:01:00 GMT"  # kubectl's discovery cache believes it
        return answer.body, b"".join([frame async for frame in answer.stream])

    return run_virtual(scene())


def test_describe_and_events_count_ages_by_the_lab() -> None:
    moved = (
        POD.replace(b'creationTimestamp":"2026-01-01T00:50:00', b'creationTimestamp":"2025-12-31T23:51:00')
        .replace(b"2026-01-01T00:55:00", b"2025-12-31T23:56:00")
        .replace(b"2026-01-01T00:59:59", b"2026-01-01T00:00:59")
    )
    assert bodies("kubectl describe") == (moved, moved)
    assert bodies("kubectl events") == (moved, moved)


def test_other_clients_read_the_labs_own_timestamps() -> None:
    assert bodies("kubectl get") == (POD, POD)


def test_a_lab_that_kept_its_data_goes_on_where_its_time_was(tmp_path: Path) -> None:
    """Otherwise leases, ages and deadlines of a lab that ran ahead would lie in the future."""
    assert resumed(tmp_path, WALL) == WALL
    (tmp_path / "log").write_bytes(POD)
    assert resumed(tmp_path, WALL) == datetime(2026, 1, 1, 0, 50, tzinfo=UTC)
    assert resumed(tmp_path, WALL + timedelta(days=1)) == WALL + timedelta(days=1)
