"""Small recordings for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dovetail.offline.recording import OfferingKey, Writer, key_of

START = datetime(2026, 1, 1, tzinfo=UTC)
IDENTITY = b"0123456789abcdef"
M5 = OfferingKey("us-west-2", "m5.large", "us-west-2a", "on-demand")


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def pod(name: str, node: str = "", phase: str = "Pending", uid: str = "", **labels: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "web", "resources": {"requests": {"cpu": "100m"}}}]}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}", "labels": labels},
        "spec": spec,
        "status": {"phase": phase},
    }


def node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": {"allocatable": {"cpu": "2", "memory": "8Gi"}},
    }


def write(path: Path) -> Path:
    """A node and two pods; one is bound, the other deleted; a price changes, usage is sampled."""
    with Writer.create(path, START, "test", IDENTITY) as writer:
        writer.put(START, node("a"))
        writer.put(START, pod("web-0"))
        writer.price(START, M5, 0.096, "list")
        writer.begin()
        writer.put(later(10), pod("web-0", "a", "Running"))
        writer.put(later(20), pod("web-1", app="web"))
        writer.flush()
        writer.usage(later(30), {key_of(node("a")): (500_000_000, 1 << 30)})
        writer.price(later(40), M5, 0.1, "list")
        writer.delete(later(50), key_of(pod("web-1")))
        writer.close(later(60))
    return path
