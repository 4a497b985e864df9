"""Capacity reservations of the lab's account; moto has none.

`aws ec2 create-capacity-reservation`, `describe-capacity-reservations` and `cancel-capacity-reservation` answer
here; CreateFleet launches into them. Usage is counted from the running instances, so that it is always true.
"""

from __future__ import annotations

import fnmatch
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import msgspec

from dovetail.clock import wall
from dovetail.lab.aws.http_forms import Answer, Environ, Form, body_of, members, one, values, xml

OWNER = "123456789012"
#: The number of running instances in a reservation.
Used = Callable[[str], int]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One reservation. `end` in the past means it is over."""

    id: str
    instance_type: str
    zone: str
    count: int
    criteria: str = "open"
    kind: str = "default"
    interruptible: bool = False
    end: datetime | None = None
    tags: Mapping[str, str] = {}
    owner: str = OWNER
    cancelled: bool = False

    def state(self, now: datetime) -> str:
        if self.cancelled:
            return "cancelled"
        return "expired" if self.end is not None and self.end <= now else "active"


class Book:
    """The reservations by id, shared by the threads that serve AWS. `now` may be another clock's."""

    def __init__(self, used: Used, now: Callable[[], datetime] = wall) -> None:
        self._used = used
        self.now = now
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._held: dict[str, Held] = {}

    def put(self, instance_type: str, zone: str, count: int, **more: object) -> Held:
        """Reserve, or change what is reserved under an `id`."""
        with self._lock:
            name = str(more.pop("id", None) or f"cr-{next(self._numbers):017x}")
            made = msgspec.convert(
                {"id": name, "instance_type": instance_type, "zone": zone, "count": count, **more}, Held
            )
            self._held[name] = made
            return made

    def cancel(self, name: str) -> bool:
        with self._lock:
            if name not in self._held:
                return False
            self._held[name] = msgspec.structs.replace(self._held[name], cancelled=True)
            return True

    def clear(self) -> None:
        with self._lock:
            self._held.clear()

    def refusal(self, name: str, instance_type: str, zone: str) -> str | None:
        """The error code for launching into a reservation, if that is refused."""
        held = self._held.get(name)
        if held is None or held.state(self.now()) != "active":
            return "InvalidCapacityReservationId.NotFound"
        if (held.instance_type, held.zone) != (instance_type, zone):
            return "InvalidParameterValue"
        return None if self._used(name) < held.count else "ReservationCapacityExceeded"

    def answer(self, environ: Environ) -> Answer | None:
        """One of the three calls, or None."""
        form = parse_qs(body_of(environ).decode(errors="replace"))
        action = one(form, "Action")
        if action == "DescribeCapacityReservations":
            rows = "".join(f"<item>{self._shown(reservation)}</item>" for reservation in self._selected(form))
            return xml(action, f"<capacityReservationSet>{rows}</capacityReservationSet>")
        if action == "CreateCapacityReservation":
            return xml(action, f"<capacityReservation>{self._shown(self._created(form))}</capacityReservation>")
        if action == "CancelCapacityReservation":
            return xml(action, f"<return>{str(self.cancel(one(form, 'CapacityReservationId'))).lower()}</return>")
        return None

    def _created(self, form: Form) -> Held:
        tags = {
            one(tag, "Key"): one(tag, "Value")
            for spec in members(form, "TagSpecifications") + members(form, "TagSpecification")
            for tag in members(spec, "Tag")
        }
        end = one(form, "EndDate")
        return self.put(
            one(form, "InstanceType"),
            one(form, "AvailabilityZone"),
            int(one(form, "InstanceCount") or 1),
            criteria=one(form, "InstanceMatchCriteria") or "open",
            tags=tags,
            end=datetime.fromisoformat(end.replace("Z", "+00:00")) if end else None,
        )

    def _selected(self, form: Form) -> Iterable[Held]:
        ids = values(form, "CapacityReservationId")
        search = [(one(member, "Name"), values(member, "Value")) for member in members(form, "Filter")]
        for reservation in sorted(self._held.values(), key=lambda held: held.id):
            if (not ids or reservation.id in ids) and all(
                self._matches(reservation, *condition) for condition in search
            ):
                yield reservation

    def _matches(self, held: Held, name: str, accepted: list[str]) -> bool:
        facts = {
            "state": held.state(self.now()),
            "instance-match-criteria": held.criteria,
            "owner-id": held.owner,
            "instance-type": held.instance_type,
            "availability-zone": held.zone,
            "capacity-reservation-id": held.id,
        }
        if name == "tag-key":
            return any(key in accepted for key in held.tags)
        fact = held.tags.get(name.removeprefix("tag:")) if name.startswith("tag:") else facts.get(name)
        return fact is not None and any(fnmatch.fnmatchcase(fact, value) for value in accepted)

    def _shown(self, held: Held) -> str:
        facts = {
            "capacityReservationId": held.id,
            "ownerId": held.owner,
            "instanceType": held.instance_type,
            "instancePlatform": "Linux/UNIX",
            "availabilityZone": held.zone,
            "tenancy": "default",
            "totalInstanceCount": held.count,
            "availableInstanceCount": max(0, held.count - self._used(held.id)),
            "state": held.state(self.now()),
            "instanceMatchCriteria": held.criteria,
            "reservationType": held.kind,
            "interruptible": str(held.interruptible).lower(),
            "endDateType": "limited" if held.end else "unlimited",
        }
        if held.end:
            facts["endDate"] = held.end.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        text = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in facts.items())
        tags = "".join(
            f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>" for key, value in held.tags.items()
        )
        return f"{text}<tagSet>{tags}</tagSet>"
