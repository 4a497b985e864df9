"""Subnets and security groups, found by selector terms.

A term that selects nothing selects nothing: it is never an error by itself. Whether the whole
selector is empty is for the node class's status to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.ttl_cache import ConfirmedListCache

Term = Mapping[str, Any]


class Subnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str
    free: int
    vpc: str


class SecurityGroup(msgspec.Struct, frozen=True):
    id: str
    name: str
    vpc: str


def filters(term: Term, *, names: str | None = None) -> list[dict[str, Any]]:
    """EC2 filters of one term. A tag value `*` asks only for the key.

    A comma is part of the value. The first generation's comma lists are terms of their own by the time they get here.
    """
    filters_: list[dict[str, Any]] = []
    for key, value in sorted((term.get("tags") or {}).items()):
        if value == "*":
            filters_.append({"Name": "tag-key", "Values": [key]})
        else:
            filters_.append({"Name": f"tag:{key}", "Values": [str(value)]})
    if names and term.get("name"):
        filters_.append({"Name": names, "Values": [term["name"]]})
    return filters_


def _key(terms: Sequence[Term]) -> bytes:
    return msgspec.json.encode(list(terms), order="sorted")


class Network:
    """Finds subnets and groups; knows how many addresses are free, less those that launches take.

    Several classes may share a subnet, and each looks for itself: every look is news of the subnets it saw to all of
    them, and of no others. What launches under way have spoken for, no look knows of yet: how many addresses an
    instance will take is a prediction (maxPods is an upper bound, and with IPv6 or custom networking far above it),
    so it ranks subnets and excludes none. A subnet is excluded once EC2 refused it, or when the addresses it had at
    the last look are fewer than the instances launched into it since.
    """

    def __init__(self, calls: Calls, clock: Clock, refresh: float = 60.0) -> None:
        self._calls = calls
        self._subnets: ConfirmedListCache[Subnet] = ConfirmedListCache(clock, refresh)
        self._groups: ConfirmedListCache[SecurityGroup] = ConfirmedListCache(clock, refresh)
        self._zone_ids: dict[str, str] = {}
        self._free: dict[str, int] = {}
        self._taken: Counter[str] = Counter()
        self._launched: Counter[str] = Counter()
        self._refused: set[str] = set()
        self._spoken_for: Counter[str] = Counter()

    async def subnets(self, terms: Sequence[Term]) -> tuple[Subnet, ...]:
        """Most free addresses first, then by id."""

        async def ask() -> tuple[Subnet, ...]:
            rows = await self._select("describe_subnets", "Subnets", terms, ids="subnet-id")
            subnets = {
                row["SubnetId"]: Subnet(
                    row["SubnetId"],
                    row["AvailabilityZone"],
                    row.get("AvailabilityZoneId", ""),
                    row.get("AvailableIpAddressCount", 0),
                    row.get("VpcId", ""),
                )
                for row in rows
            }
            for subnet in subnets.values():
                self._zone_ids[subnet.zone] = subnet.zone_id
                self._free[subnet.id] = subnet.free
                self._taken.pop(subnet.id, None)
                self._launched.pop(subnet.id, None)
                self._refused.discard(subnet.id)
            return tuple(sorted(subnets.values(), key=lambda s: (-s.free, s.id)))

        return await self._subnets.get(_key(terms), ask)

    async def groups(self, terms: Sequence[Term]) -> tuple[SecurityGroup, ...]:
        async def ask() -> tuple[SecurityGroup, ...]:
            rows = await self._select(
                "describe_security_groups", "SecurityGroups", terms, ids="group-id", names="group-name"
            )
            groups = {
                row["GroupId"]: SecurityGroup(row["GroupId"], row.get("GroupName", ""), row.get("VpcId", ""))
                for row in rows
            }
            return tuple(sorted(groups.values(), key=lambda g: g.id))

        return await self._groups.get(_key(terms), ask)

    def by_zone(self, subnets: Sequence[Subnet], pods: int) -> dict[str, Subnet]:
        """For each zone the subnet with most room predicted, `pods` addresses of which are now spoken for."""
        best: dict[str, Subnet] = {}
        for subnet in filter(self.has_addresses, subnets):
            kept = best.get(subnet.zone)
            if kept is None or self.room(subnet) > self.room(kept):
                best[subnet.zone] = subnet
        self._spoken_for.update(dict.fromkeys((subnet.id for subnet in best.values()), pods))
        return best

    def finish_launch(self, subnets: Mapping[str, Subnet], used: set[str], pods: int) -> None:
        """A launch is over: what it spoke for is taken in the subnets it used, and free again in the others."""
        self._spoken_for.subtract(dict.fromkeys((subnet.id for subnet in subnets.values()), pods))
        self._taken.update(dict.fromkeys(used, pods))
        self._launched.update(used)

    def exhausted(self, subnet_id: str) -> None:
        """EC2 says this subnet has no free address: do not ask again before the next look."""
        self._refused.add(subnet_id)

    def zone_id(self, zone: str) -> str:
        """The id of a zone that a subnet was seen in; empty for others."""
        return self._zone_ids.get(zone, "")

    def has_addresses(self, subnet: Subnet) -> bool:
        """Whether an instance may get an address here, by what EC2 said and not by what is predicted."""
        free = self._free.get(subnet.id, subnet.free)
        return subnet.id not in self._refused and free - self._launched[subnet.id] >= 1

    def room(self, subnet: Subnet) -> int:
        """Addresses predicted to be left; below zero where launches speak for more than there are. For ranking only."""
        return self._free.get(subnet.id, subnet.free) - self._taken[subnet.id] - self._spoken_for[subnet.id]

    async def _select(
        self, operation: str, field: str, terms: Sequence[Term], *, ids: str, names: str | None = None
    ) -> list[Mapping[str, Any]]:
        """All rows that any term selects; the ids of all terms go in one call."""
        rows: list[Mapping[str, Any]] = []
        subnet_ids = [term["id"] for term in terms if term.get("id")]
        if subnet_ids:
            search = [{"Name": ids, "Values": subnet_ids}]
            rows += await self._calls.all("ec2", operation, field, Filters=search)
        for term in terms:
            if not term.get("id") and (search := filters(term, names=names)):
                described = await self._calls.all("ec2", operation, field, Filters=search)
                rows += [row for row in described if _matches(row, term)]
        return rows


def _matches(row: Mapping[str, Any], term: Term) -> bool:
    """The tags once more on our side: some servers let the last of two like filters win."""
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
    return all(key in tags for key in (term.get("tags") or {}))
