"""Capacity reservations: capacity that is paid for already, found by terms, counted between looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.ageing import Ageing
from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.errors import code_of
from dovetail.cloud.aws.network import Term, filters
from dovetail.cloud.aws.types import Reservation

#: A capacity block is not started upon in its last minutes.
LAST = timedelta(minutes=40)

#: Answers of servers that do not know the call at all.
_NO_SUCH_CALL = frozenset({"InvalidAction", "500", "404", "ResponseParserError"})


class Reservations:
    def __init__(self, calls: Calls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._found: Ageing[tuple[Reservation, ...]] = Ageing(clock, 60.0)

    async def select(self, terms: Sequence[Term]) -> tuple[Reservation, ...]:
        if not terms:
            return ()
        key = msgspec.json.encode(list(terms), order="sorted")
        return await self._found.get(key, lambda: self._select(terms))

    async def _select(self, terms: Sequence[Term]) -> tuple[Reservation, ...]:
        rows: dict[str, Mapping[str, Any]] = {}
        for term in terms:
            asked = [*filters(term), {"Name": "state", "Values": ["active"]}]
            if term.get("ownerID"):
                asked.append({"Name": "owner-id", "Values": [term["ownerID"]]})
            if term.get("instanceMatchCriteria"):
                asked.append({"Name": "instance-match-criteria", "Values": [term["instanceMatchCriteria"]]})
            arguments: dict[str, Any] = {"Filters": asked}
            if term.get("id"):
                arguments["CapacityReservationIds"] = [term["id"]]
            for row in await self._ask(arguments):
                rows[row["CapacityReservationId"]] = row
        return tuple(self._reservation(row) for _, row in sorted(rows.items()))

    async def _ask(self, arguments: dict[str, Any]) -> list[Mapping[str, Any]]:
        try:
            return await self._calls.all(
                "ec2", "describe_capacity_reservations", "CapacityReservations", **arguments
            )
        except Exception as error:
            if code_of(error) in _NO_SUCH_CALL:
                return []  # a place without reservations has none
            raise

    def _reservation(self, row: Mapping[str, Any]) -> Reservation:
        end = row.get("EndDate")
        block = row.get("ReservationType") == "capacity-block"
        return Reservation(
            id=row["CapacityReservationId"],
            instance_type=row["InstanceType"],
            zone=row["AvailabilityZone"],
            free=row.get("AvailableInstanceCount", 0),
            kind="capacity-block" if block else "default",
            expiring=bool(block and end and end - self._clock.now() < LAST),
        )
