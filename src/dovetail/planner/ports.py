"""Host ports as a resource: one of each port of each address; whoever listens everywhere takes them all."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.planner.shape import Port

PORT = "port:"
EVERYWHERE = "0.0.0.0"


def with_ports(requests: dict[str, int], ports: Sequence[Port]) -> dict[str, int]:
    return {**requests, **port_requests(tuple(ports), {})}


def port_requests(ports: tuple[Port, ...], addresses: dict[tuple[str, int], set[str]]) -> dict[str, int]:
    """Host ports as a resource of which there is one; the wildcard address takes the port on every address."""
    found: dict[str, int] = {}
    for ip, protocol, number in ports:
        wanted = {ip} | (addresses.get((protocol, number), set()) if ip == EVERYWHERE else set())
        for address in wanted:
            found[f"{PORT}{protocol}/{number}/{address}"] = 1
    return found
