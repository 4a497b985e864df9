"""Stores of the decision history: a file, or ConfigMaps beside the controller.

Both hold one JSON decision a line. ConfigMaps are filled one after the other and deleted whole, so that no
write ever rewrites much and expiry is a delete.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import CONFIGMAPS

LABEL = "dovetail.sh/history"
#: The namespace of the lease and the history by default.
NAMESPACE = "kube-system"
#: The ConfigMap in which `dovetail cluster-autoscaler` keeps its decisions.
GROUP_DECISIONS = "cluster-autoscaler-decisions"
#: A ConfigMap may hold 1 MiB; we stop well before, since each append sends it whole.
MAX_CONFIGMAP_CHARS = 128 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Decision).decode


def lines(text: bytes | str) -> list[Decision]:
    """The decisions of a text; a line that is none, for one that was cut short by a crash, is left out."""
    records = []
    for line in text.splitlines():
        try:
            records.append(_decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return records


def shadow_file() -> Path:
    """Where a dry run keeps its decisions unless `--history` names a file: it may not write ConfigMaps."""
    return Path(tempfile.gettempdir()) / "dovetail-shadow.jsonl"


class File:
    """A file of decisions, appended to. It is rewritten when a good part of it has become too old."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> Iterable[Decision]:
        return lines(self._path.read_bytes()) if self._path.exists() else ()

    async def append(self, decisions: Iterable[Decision]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(b"".join(_encode(decision) + b"\n" for decision in decisions))

    async def forget(self, before: str) -> None:
        if not self._path.exists():
            return
        existing = lines(self._path.read_bytes())
        recent = [decision for decision in existing if decision.time >= before]
        if len(recent) <= len(existing) * 0.8:
            fresh = self._path.with_suffix(self._path.suffix + ".new")
            fresh.write_bytes(b"".join(_encode(decision) + b"\n" for decision in recent))
            fresh.replace(self._path)


class ConfigMaps:
    """ConfigMaps `dovetail-history-<first decision's time>` in one namespace."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = ""
        self._text = ""

    async def load(self) -> Iterable[Decision]:
        decisions: list[Decision] = []
        for config_map in await self._maps():
            text = (config_map.get("data") or {}).get("decisions", "")
            decisions.extend(lines(text))
            self._name, self._text = config_map["metadata"]["name"], text
        return decisions

    async def append(self, decisions: Iterable[Decision]) -> None:
        for time, text in _pieces(decisions):
            await self._append(time, text)

    async def _append(self, time: str, text: str) -> None:
        if not self._name or len(self._text) + len(text) > MAX_CONFIGMAP_CHARS:
            await self._begin(time, text)
            return
        try:
            body = {"data": {"decisions": self._text + text}}
            await self._kube.patch(CONFIGMAPS, self._name, body, self._namespace)
            self._text += text
        except NotFound:
            await self._begin(time, text)

    async def forget(self, before: str) -> None:
        for config_map in await self._maps():
            existing = lines((config_map.get("data") or {}).get("decisions", ""))
            if config_map["metadata"]["name"] != self._name and (not existing or existing[-1].time < before):
                await self._kube.delete(CONFIGMAPS, config_map["metadata"]["name"], self._namespace)

    async def _begin(self, time: str, text: str) -> None:
        """A new ConfigMap; or one of the same second that has room, which a previous process created."""
        second = "dovetail-history-" + "".join(c for c in time if c.isdigit())
        for name in chain((second,), (f"{second}-{number:03}" for number in count(1))):
            existing_text = await self._held(name, text)
            if len(existing_text) + len(text) <= MAX_CONFIGMAP_CHARS or not existing_text:
                break
        if existing_text:
            await self._kube.patch(CONFIGMAPS, name, {"data": {"decisions": existing_text + text}}, self._namespace)
        self._name, self._text = name, existing_text + text

    async def _held(self, name: str, text: str) -> str:
        """What a ConfigMap holds already; one that does not exist is created with the text."""
        metadata = {"name": name, "namespace": self._namespace, "labels": {LABEL: "true"}}
        try:
            await self._kube.create(CONFIGMAPS, {"metadata": metadata, "data": {"decisions": text}})
            return ""
        except AlreadyExists:
            existing = await self._kube.get(CONFIGMAPS, name, self._namespace)
            return str((existing.get("data") or {}).get("decisions", ""))

    async def _maps(self) -> Sequence[dict[str, Any]]:
        listing = await self._kube.list(CONFIGMAPS, self._namespace, labels=f"{LABEL}=true")
        return sorted(listing.items, key=lambda config_map: str(config_map["metadata"]["name"]))


def _pieces(decisions: Iterable[Decision]) -> Iterator[tuple[str, str]]:
    """Lines, together as many as a ConfigMap takes, with the time of the first."""
    time, text = "", ""
    for decision in decisions:
        line = _line(decision)
        if text and len(text) + len(line) > MAX_CONFIGMAP_CHARS:
            yield time, text
            text = ""
        time, text = time if text else decision.time, text + line
    if text:
        yield time, text


def _line(decision: Decision) -> str:
    """A decision in one line. One that would fill a ConfigMap alone goes without its funnels."""
    line = _encode(decision).decode()
    if len(line) > MAX_CONFIGMAP_CHARS:
        bare = tuple(msgspec.structs.replace(refusal, pools={}) for refusal in decision.refusals)
        line = _encode(msgspec.structs.replace(decision, refusals=bare)).decode()
    return line + "\n"
