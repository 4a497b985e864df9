"""Answers with what may differ between two servers taken out, and nothing else.

Identifiers become numbers, by object and in the order they are first seen, so "the same uid again" is still
checked; the same holds for the resourceVersion of objects, so a write that changes nothing is visible.
Times, ages, addresses and tokens become words.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dovetail.kube.transport import Response

_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4} UTC)( m=[+-][\d.]+)?")
_AGE = re.compile(r"^(\d+[smhdy])+$")
_RV_TEXT = re.compile(r"(resource ?version:? |current: |requested: |in record \()\"?\d+\"?( \(\d+\))?", re.IGNORECASE)
_RV_JSON = re.compile(r'(\\?"resourceVersion\\?":\\?")\d+')
_SERVICE_IP = re.compile(r"\b10\.96\.\d+\.\d+\b")
_NODE_PORT = re.compile(r":3[0-2]\d{3}/")
_HEADERS = ("content-type", "warning", "retry-after", "allow", "location")


class Normal:
    """Remembers what it numbered, for one topic on one server."""

    def __init__(self) -> None:
        self._seen: dict[str, list[str]] = {}
        self._uids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def answer(self, response: Response, body: bytes) -> dict[str, Any]:
        """What is compared of a plain response."""
        shown: dict[str, Any] = {"code": response.status}
        headers = {name: response.headers[name] for name in _HEADERS if name in response.headers}
        if headers.get("content-type", "").startswith("application/json"):
            del headers["content-type"]
        if headers:
            shown["headers"] = {name: self.text(value).split("\n") for name, value in headers.items()}
        try:
            shown["body"] = self.value(msgspec.json.decode(body))
        except msgspec.DecodeError:
            shown["text"] = self.text(body.decode(errors="replace"))
        return shown

    def event(self, line: bytes) -> Any:
        return self.value(msgspec.json.decode(line))

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            return self.text(value)
        return value

    def text(self, text: str) -> str:
        text = _UID.sub(lambda found: self._uids.get(found.group(), "<uid>"), text)
        for name, shown in self._names.items():
            text = text.replace(name, shown)
        text = _NODE_PORT.sub(":<port>/", _SERVICE_IP.sub("<address>", _TIME.sub("<time>", text)))
        text = _RV_JSON.sub(lambda found: f"{found.group(1)}<version>", text)
        return _RV_TEXT.sub(lambda found: f"{found.group(1)}<version>", text)

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        if "columnDefinitions" in value and "rows" in value:
            value = _without_ages(value)
        name = str(value.get("generateName") or value.get("name") or "")
        if value.get("generateName") and str(value.get("name", "")).startswith(value["generateName"][:57]):
            self._names[value["name"]] = self._number("name", value["generateName"], value["name"])
        uid = value.get("uid")
        if name and isinstance(uid, str) and _UID.fullmatch(uid) and uid not in self._uids:
            self._uids[uid] = self._number("uid", name, uid)
        shown = {self.text(key) if "uid" in key else key: self.value(item) for key, item in value.items()}
        if value.get("resourceVersion"):
            version = str(value["resourceVersion"])
            shown["resourceVersion"] = self._number("version", name, version) if name else "<version>"
        if value.get("continue"):
            shown["continue"] = "<continue>"
        if value.get("serverAddress"):
            shown["serverAddress"] = "<address>"
        if isinstance(shown.get("managedFields"), list):
            shown["managedFields"].sort(key=_entry)
        for key in ("clusterIP", "hostIP"):
            if value.get(key) not in (None, "", "None"):
                shown[key] = "<address>"
        if value.get("clusterIPs") and value["clusterIPs"] != ["None"]:
            shown["clusterIPs"] = ["<address>"]
        for key in ("nodePort", "healthCheckNodePort"):
            if isinstance(value.get(key), int):
                shown[key] = "<port>"
        return shown

    def _number(self, kind: str, name: str, text: str) -> str:
        """The how-manieth of its kind this is for the object called `name`."""
        seen = self._seen.setdefault(f"{kind} {name}", [])
        if text not in seen:
            seen.append(text)
        return f"<{kind} {seen.index(text) + 1} of {name}>"


def _without_ages(value: dict[str, Any]) -> dict[str, Any]:
    """A Table without the prose of its columns and with words for ages, which depend on the moment of asking."""
    rows = []
    for row in value["rows"] or ():
        cells = ["<age>" if isinstance(cell, str) and _AGE.match(cell) else cell for cell in row.get("cells") or ()]
        rows.append({**row, "cells": cells})
    columns = [{**column, "description": ""} for column in value["columnDefinitions"] or ()]
    return {
        **value,
        "rows": rows if value["rows"] is not None else None,
        "columnDefinitions": columns if value["columnDefinitions"] is not None else None,
    }


def _entry(field: dict[str, Any]) -> tuple[str, str, str, str]:
    """Entries of one operation stand in the order of their seconds, which depend on the run."""
    return tuple(str(field.get(key, "")) for key in ("operation", "manager", "subresource", "apiVersion"))  # type: ignore[return-value]
