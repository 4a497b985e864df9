"""What `dovetail up` shows stays calm however many pods say the same."""

from __future__ import annotations

from typing import Any

from dovetail.cli.status_lines import _line, together


def event(name: str, message: str) -> dict[str, Any]:
    about = {"kind": "Pod", "name": name}
    when = "2026-01-01T10:00:00Z"
    return {"involvedObject": about, "reason": "FailedScheduling", "message": message, "lastTimestamp": when}


def test_what_many_pods_say_alike_is_one_line() -> None:
    full = "0/3 nodes are available"
    said = [event("a", full), event("b", "quota"), event("c", full), event("a", full)]
    assert [_line(each) for each in together(said).values()] == [
        "10:00:00  pod/b  FailedScheduling: quota",
        "10:00:00  pod/a and 1 more  FailedScheduling: 0/3 nodes are available",
    ]
