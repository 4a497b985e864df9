"""Host ports: the ports of its node that a pod uses, and the pod that already uses one of them.

Containers and sidecars count, as in kube-scheduler. Two ports clash when protocol and number are the same
and the addresses are, or when one of them means every address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from dovetail.model.pods import Pod

ANY = "0.0.0.0"


class HostPort(msgspec.Struct, frozen=True, gc=False):
    ip: str
    port: int
    protocol: str

    def clashes(self, other: HostPort) -> bool:
        if self.port != other.port or self.protocol != other.protocol:
            return False
        mine, its = _address(self.ip), _address(other.ip)
        return mine == its or _everywhere(mine) or _everywhere(its)

    def scheduled_apart(self, other: HostPort) -> bool:
        """Whether kube-scheduler keeps the two apart: it goes by spelling, and `::` is just another address to it."""
        if self.port != other.port or self.protocol != other.protocol:
            return False
        return self.ip == other.ip or ANY in (self.ip, other.ip)

    def __str__(self) -> str:
        return f"IP={_address(self.ip)} Port={self.port} Proto={self.protocol}"


@lru_cache(maxsize=4096)
def _address(text: str) -> str:
    """The address in its one spelling; what is no address stays `<nil>`."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "<nil>"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _everywhere(address: str) -> bool:
    return address in (ANY, "::")


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports a pod holds while it runs."""
    holders = [
        *(init_container for init_container in pod.spec.init_containers if init_container.sidecar),
        *pod.spec.containers,
    ]
    return tuple(
        HostPort(port.host_ip or ANY, port.host_port, port.protocol or "TCP")
        for container in holders
        for port in container.ports
        if port.host_port > 0
    )


def clash(requested: Iterable[HostPort], taken: Iterable[HostPort]) -> tuple[HostPort, HostPort] | None:
    """The first wanted port that is taken, with the port that takes it."""
    held = tuple(taken)
    for port in requested:
        for other in held:
            if port.clashes(other):
                return port, other
    return None
