"""Durations as people write them in scenarios and on the command line: `90`, `90s`, `5m`, `2h30m` or `1d`."""

from __future__ import annotations

import re

from dovetail.language import message


class Seconds(float):
    """A duration in seconds."""


_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def seconds(text: object) -> Seconds:
    """A duration in any of its spellings."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and text >= 0:
        return Seconds(text)
    if isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)?", text):
        return Seconds(text)
    if isinstance(text, str) and re.fullmatch(r"(\d+(\.\d+)?[dhms])+", text):
        parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text)
        return Seconds(sum(float(number) * _UNITS[unit] for number, unit in parts))
    raise ValueError(message("{text!r} is not a duration; write 90s, 5m, 2h30m or 1d", text=text))


def decode(kind: type, value: object) -> object:
    """How msgspec reads a duration: its `dec_hook`."""
    if kind is Seconds:
        return seconds(value)
    raise NotImplementedError(f"no reading of {kind}")
