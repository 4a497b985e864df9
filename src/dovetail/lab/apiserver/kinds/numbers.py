"""Numbers in specs: counts that may not be negative, counts that may be percentages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, invalid

NEGATIVE = "must be greater than or equal to 0"


def nonnegative(value: int | None, path: str) -> list[FieldError]:
    return [invalid(path, value, NEGATIVE)] if value is not None and value < 0 else []


def all_nonnegative(values: Mapping[str, Any], names: Iterable[str], path: str) -> list[FieldError]:
    return [error for name in names for error in nonnegative(values.get(name), f"{path}.{name}")]


def int_or_percent(value: int | str, path: str) -> list[FieldError]:
    if isinstance(value, str):
        return [invalid(path, value, text) for text in formats.percent(value)]
    return nonnegative(value, path)


def percent_of(value: int | str) -> int | None:
    """The number in front of a percent sign; None where the value is no percentage."""
    if isinstance(value, str) and not formats.percent(value):
        return int(value[:-1])
    return None


def amount_of(value: int | str) -> int:
    percent = percent_of(value)
    if percent is not None:
        return percent
    if isinstance(value, int):
        return value
    return int(value) if value.lstrip("+-").isdigit() else 0


def not_above_100(value: int | str, path: str) -> list[FieldError]:
    percent = percent_of(value)
    return [invalid(path, value, "must not be greater than 100%")] if percent is not None and percent > 100 else []
