"""Capacity reservations: capacity that is paid for already, found by terms, counted between looks.

EC2 is asked once a minute; in between, what we launch and end is counted here, so that a burst does not
plan the same reserved instance twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of
from dovetail.cloud.aws.subnets import Term, filters
from dovetail.cloud.aws.ttl_cache import TtlCache
from dovetail.model.labels import RESERVATION, RESERVATION_INTERRUPTIBLE, RESERVATION_TYPE
from dovetail.model.meta import stamp

CAPACITY_BLOCK = "capacity-block"
#: EC2's name of the market for reservations that their owner may take back.
INTERRUPTIBLE = "interruptible-capacity-reservation"

#: A capacity block is not started upon in its last minutes.
LAST = timedelta(minutes=40)

#: Answers of servers that do not know the call at all.
_NO_SUCH_CALL = frozenset({"InvalidAction", "500", "404", "ResponseParserError"})


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity reservation of a node class, with what is left of it."""

    id: str
    instance_type: str
    zone: str
    free: int
    kind: str = "default"
    owner: str = ""
    criteria: str = "open"
    interruptible: bool = False
    end: datetime | None = None
    expiring: bool = False

    def status(self) -> dict[str, Any]:
        """As a node class's status shows it."""
        ends = {"endTime": stamp(self.end)} if self.end else {}
        return {
            "availabilityZone": self.zone,
            "id": self.id,
            "instanceMatchCriteria": self.criteria,
            "instanceType": self.instance_type,
            "interruptible": self.interruptible,
            "ownerID": self.owner,
            "reservationType": self.kind,
            "state": "expiring" if self.expiring else "active",
            **ends,
        }

    def labels(self) -> dict[str, str]:
        return {
            RESERVATION: self.id,
            RESERVATION_TYPE: self.kind,
            RESERVATION_INTERRUPTIBLE: str(self.interruptible).lower(),
        }


class Reservations:
    def __init__(self, calls: Calls, clock: Clock, *, enabled: bool = True) -> None:
        """Not `enabled` (feature gate ReservedCapacity): no reservation is planned with."""
        self._enabled = enabled
        self._calls = calls
        self._clock = clock
        self._found: TtlCache[tuple[Reservation, ...]] = TtlCache(clock, 60.0)
        self._used: dict[str, int] = {}

    async def select(self, terms: Sequence[Term]) -> tuple[Reservation, ...]:
        """What the terms select, less what was taken since EC2 was asked; a full one stays in the list."""
        if not terms or not self._enabled:
            return ()
        key = msgspec.json.encode(list(terms), order="sorted")
        reservations = await self._found.get(key, lambda: self._select(terms))
        return tuple(self._counted(reservation) for reservation in reservations)

    def spent(self, reservation: str) -> None:
        """An instance was launched into it."""
        self._used[reservation] = self._used.get(reservation, 0) + 1

    def given_back(self, reservation: str) -> None:
        """An instance of it was ended."""
        if reservation:
            self._used[reservation] = self._used.get(reservation, 0) - 1

    def full(self, reservation: str) -> None:
        """EC2 says that nothing is left of it."""
        self._used[reservation] = 1 << 30

    def _counted(self, reservation: Reservation) -> Reservation:
        used = self._used.get(reservation.id, 0)
        now = self._clock.now()
        expiring = reservation.kind == CAPACITY_BLOCK and reservation.end is not None and reservation.end - now < LAST
        if not used and expiring == reservation.expiring:
            return reservation
        return msgspec.structs.replace(reservation, free=max(0, reservation.free - used), expiring=expiring)

    async def _select(self, terms: Sequence[Term]) -> tuple[Reservation, ...]:
        rows: dict[str, Mapping[str, Any]] = {}
        for term in terms:
            search = [*filters(term), {"Name": "state", "Values": ["active"]}]
            if term.get("ownerID"):
                search.append({"Name": "owner-id", "Values": [term["ownerID"]]})
            if term.get("instanceMatchCriteria"):
                search.append({"Name": "instance-match-criteria", "Values": [term["instanceMatchCriteria"]]})
            if term.get("id"):
                search.append({"Name": "capacity-reservation-id", "Values": [term["id"]]})
            for row in await self._ask(search):
                rows[row["CapacityReservationId"]] = row
        for name in rows:
            self._used.pop(name, None)
        now = self._clock.now()
        reservations = (_reservation(row) for _, row in sorted(rows.items()))
        return tuple(reservation for reservation in reservations if reservation.end is None or reservation.end > now)

    async def _ask(self, search: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        try:
            return await self._calls.all(
                "ec2", "describe_capacity_reservations", "CapacityReservations", Filters=list(search)
            )
        except Exception as error:
            if code_of(error) in _NO_SUCH_CALL:
                return []  # a place without reservations has none
            raise


def _reservation(row: Mapping[str, Any]) -> Reservation:
    return Reservation(
        id=row["CapacityReservationId"],
        instance_type=row["InstanceType"],
        zone=row["AvailabilityZone"],
        free=row.get("AvailableInstanceCount", 0),
        kind=CAPACITY_BLOCK if row.get("ReservationType") == CAPACITY_BLOCK else "default",
        owner=row.get("OwnerId", ""),
        criteria=row.get("InstanceMatchCriteria", "open"),
        interruptible=bool(row.get("Interruptible")),
        end=row.get("EndDate"),
    )
