"""What the blocks of a recording hold, and the state that they add up to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

from dovetail.language import message
from dovetail.offline.recording.differences import BadDifference, apply

Json = dict[str, Any]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def milliseconds(instant: datetime) -> int:
    """Since 1970; what is less than one is dropped."""
    return (instant - _1970) // _MS


def instant(ms: int) -> datetime:
    return _1970 + timedelta(milliseconds=ms)


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording says of itself."""

    cluster: str
    start_ms: int
    #: The release that wrote it.
    writer: str
    #: Whether names were hashed.
    anonymised: bool = False
    #: Where it was converted from, as `simkube`; empty for a recorded cluster.
    source: str = ""


class OfferingKey(NamedTuple):
    """What has a price. An empty zone stands for all zones of the region."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str


class RecordedPrice(NamedTuple):
    """Dollars an hour and where that is from."""

    dollars: float
    source: str


class ObjectKey(NamedTuple):
    """An object whatever its version: API group, kind, namespace (empty for none) and name."""

    group: str
    kind: str
    namespace: str
    name: str


def key_of(source: Json) -> ObjectKey:
    metadata = source["metadata"]
    group = source["apiVersion"].rpartition("/")[0]
    return ObjectKey(group, source["kind"], metadata.get("namespace") or "", metadata["name"])


class RecordedEvent(msgspec.Struct, frozen=True):
    """A change of an object. `object` is the new version, or the last one of a deleted object; `old` the one before.

    Objects share what they have in common: copy one before you change it.
    """

    time: datetime
    type: EventType
    object: Json
    old: Json | None = None


# What is stored. `at` is milliseconds after the first time of its block.


class Put(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """An object that is new (`base` is one like it, or -1 for none) or another version of itself (`base == number`)."""

    at: int
    number: int
    base: int
    difference: Any


class DeleteRecord(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """An object that is gone; `difference` leads to its last version."""

    at: int
    number: int
    difference: Any = None


class PriceRecord(msgspec.Struct, frozen=True, array_like=True, tag=2):
    at: int
    region: str
    instance_type: str
    zone: str
    capacity_type: str
    dollars: float
    source: str


class Usage(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Changes of usage: numbers of objects, each less the one before it, and CPU and memory in steps.

    None as steps means that the object is no longer measured.
    """

    at: int
    numbers: list[int]
    steps: list[tuple[int, int] | None]


class Gap(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Nothing was recorded for so many milliseconds before this."""

    at: int
    length_ms: int


Record = Put | DeleteRecord | PriceRecord | Usage | Gap
RECORDS = msgspec.msgpack.Decoder(list[Record])

#: More dollars an hour than any instance costs.
MAX_DOLLARS = 1e6
#: Usage is kept to within 4 %: the next step is so many times the last one.
USAGE_STEP = 1.08
#: More than all memory there is.
MAX_USAGE_STEP = 1000


def usage_step(amount: int) -> int:
    """The step that stands for an amount; 0 for nothing."""
    if amount <= 0:
        return 0
    return 1 + round(math.log(amount) / math.log(USAGE_STEP))


def usage_amount(step: int) -> int:
    return 0 if step <= 0 else round(USAGE_STEP ** (step - 1))


class Measured(NamedTuple):
    """Nanocores of CPU and bytes of memory, to within 4 %."""

    cpu: int
    memory: int


class RecordedState:
    """Objects by number, prices and usage at a moment."""

    def __init__(self) -> None:
        self.objects: dict[int, Json] = {}
        self.numbers: dict[ObjectKey, int] = {}
        self.prices: dict[OfferingKey, RecordedPrice] = {}
        self.usage: dict[int, tuple[int, int]] = {}
        self.next_number = 0

    def take(self, record: Record) -> tuple[EventType, Json, Json | None] | None:
        """Apply a record; what it did to an object, if it did. `BadDifference` if it cannot be."""
        if isinstance(record, Put):
            return self._put(record)
        if isinstance(record, DeleteRecord):
            return self._delete(record)
        if isinstance(record, PriceRecord):
            key = OfferingKey(record.region, record.instance_type, record.zone, record.capacity_type)
            self.prices[key] = RecordedPrice(record.dollars, record.source)
        elif isinstance(record, Usage):
            self._use(record)
        return None

    def _put(self, record: Put) -> tuple[EventType, Json, Json | None]:
        number, base = record.number, record.base
        old = self.objects.get(number)
        if base == -1:
            source: Any = {}
        elif base in self.objects:
            source = self.objects[base]
        else:
            raise BadDifference(
                message("object {n} is based on object {base}, which is not there", n=number, base=base)
            )
        if (old is None) != (number >= self.next_number) or (old is not None and base != number):
            raise BadDifference(message("object {n} is neither new nor the one before", n=number))
        new = source if record.difference is None else apply(source, record.difference)
        key = _checked_key(new)
        if self.numbers.get(key, number) != number or (old is not None and key_of(old) != key):
            raise BadDifference(message("{kind} {name} is there twice", kind=key.kind, name=key.name))
        self.numbers[key] = number
        self.objects[number] = new
        self.next_number = max(self.next_number, number + 1)
        return ("ADDED" if old is None else "MODIFIED"), new, old

    def _delete(self, record: DeleteRecord) -> tuple[EventType, Json, Json | None]:
        old = self.objects.get(record.number)
        if old is None:
            raise BadDifference(message("object {n} is deleted and was not there", n=record.number))
        last = old if record.difference is None else apply(old, record.difference)
        if _checked_key(last) != key_of(old):
            raise BadDifference(message("object {n} has another name when it is deleted", n=record.number))
        del self.objects[record.number], self.numbers[key_of(old)]
        self.usage.pop(record.number, None)
        return "DELETED", last, old

    def _use(self, record: Usage) -> None:
        if len(record.numbers) != len(record.steps):
            raise BadDifference(message("usage has more objects than amounts, or fewer"))
        number = 0
        for more, steps in zip(record.numbers, record.steps, strict=True):
            number += more
            if number not in self.objects:
                raise BadDifference(message("usage of object {n}, which is not there", n=number))
            if steps is None:
                self.usage.pop(number, None)
            elif not all(0 <= step <= MAX_USAGE_STEP for step in steps):
                raise BadDifference(message("usage of object {n} is {steps}", n=number, steps=steps))
            else:
                self.usage[number] = steps

    def measured(self) -> Iterator[tuple[ObjectKey, Measured]]:
        for number, (cpu, memory) in self.usage.items():
            yield key_of(self.objects[number]), Measured(usage_amount(cpu), usage_amount(memory))


def _checked_key(source: Any) -> ObjectKey:
    """The key of what a file says is an object."""
    try:
        key = key_of(source)
    except (KeyError, TypeError, AttributeError) as problem:
        raise BadDifference(message("an object has no kind or no name")) from problem
    if not all(isinstance(part, str) for part in key):
        raise BadDifference(message("the name of an object is no text"))
    return key
