"""Requests whose answers were taken from a real kube-apiserver 1.36.3, asked again here.

Identifiers, times, addresses and ports that a server chooses are compared as such; managedFields have their own tests.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data" / "apiserver"
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
ADDRESS = re.compile(r"10\.96\.\d+\.\d+")


def plain(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            plain(name): "RV" if name == "resourceVersion" and item else plain(item, name)
            for name, item in value.items()
            if name != "managedFields"
        }
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return ADDRESS.sub("IP", TIME.sub("TIME", UID.sub("UID", value)))
    return "PORT" if key == "nodePort" and value else value


TOPICS = [
    "pods",
    "workloads",
    "kinds",
    "custom",
    "admission",
    "updates",
    "definitions",
    "edges",
    "warnings",
    "services",
]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_recorded_request_is_answered_alike(api: Any, topic: str) -> None:
    different = []
    for entry in json.loads((DATA / f"{topic}.json").read_text()):
        method, path, content, body = entry["do"]
        code, answer, warnings = api(method, path, body, content)
        if "code" not in entry:
            continue
        if (code, plain(answer), warnings) != (entry["code"], entry["body"], entry["warn"]):
            different.append((method, path, body, code, plain(answer), warnings))
    assert not different, different[0]
