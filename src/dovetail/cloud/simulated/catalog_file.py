"""The catalogue file: what a simulated cloud sells, as a JSON array that people and tools can write.

Allocatable is capacity less overhead. A missing price stays missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.quantity import resources


class CatalogueError(ValueError):
    """The file, the entry and the field that are wrong."""


class _Offering(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    zone: str
    capacity_type: str
    price: float | None = None
    available: bool = True
    labels: dict[str, str] = {}
    reservation_id: str | None = None
    reservation_capacity: int | None = None


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    capacity: dict[str, str | int | float]
    offerings: list[_Offering]
    overhead: dict[str, str | int | float] = {}
    labels: dict[str, list[str] | str] = {}
    attach_limits: dict[str, int] = {}


def read(path: Path) -> tuple[InstanceType, ...]:
    """The instance types of a catalogue file, in the file's order."""
    try:
        return parse(path.read_bytes())
    except OSError as problem:
        raise CatalogueError(f"{path}: {system_error(problem)}") from problem
    except CatalogueError as problem:
        raise CatalogueError(f"{path}: {problem}") from problem


def parse(text: bytes) -> tuple[InstanceType, ...]:
    try:
        entries = msgspec.json.decode(text, type=list[_Entry])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise CatalogueError(message("not a catalogue: {problem}", problem=problem)) from problem
    types = tuple(_instance_type(entry) for entry in entries)
    names = [t.name for t in types]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise CatalogueError(message("{twice!r} is in the catalogue twice", twice=twice[0]))
    return types


def _instance_type(entry: _Entry) -> InstanceType:
    return InstanceType(
        name=entry.name,
        capacity=_resources(entry.name, "capacity", entry.capacity),
        overhead=_resources(entry.name, "overhead", entry.overhead),
        labels={key: (value,) if isinstance(value, str) else tuple(value) for key, value in entry.labels.items()},
        offerings=tuple(
            Offering(
                zone=o.zone,
                capacity_type=o.capacity_type,
                price=o.price,
                available=o.available,
                labels=o.labels,
                reservation_id=o.reservation_id,
                reservation_capacity=o.reservation_capacity,
                price_source="catalogue",
            )
            for o in entry.offerings
        ),
        attach_limits=entry.attach_limits,
    )


def _resources(name: str, field: str, amounts: Mapping[str, str | int | float]) -> dict[str, int]:
    try:
        return resources({key: str(amount) for key, amount in amounts.items()})
    except ValueError as problem:
        raise CatalogueError(f"{name}: {field}: {problem}") from problem
