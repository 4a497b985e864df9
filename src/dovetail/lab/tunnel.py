"""The way from a real API server into the lab's network, in which no address is reachable from outside.

kube-apiserver asks a proxy for every connection into its cluster. Here it is a socket in a folder of ours: what is
meant for a kubelet, on whichever node, goes to the one endpoint that serves them all; the rest goes where
it is addressed to.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from dovetail.lab.kubelet.node import KUBELET_PORT

_PIECE = 64 * 1024


class Tunnel:
    """`flags` tell kube-apiserver to use it; `kubelets` is the port on the loopback where they are heard."""

    def __init__(self, folder: Path) -> None:
        self.kubelets: int | None = None
        self._socket = folder / "cluster.sock"
        self._settings = folder / "egress.yaml"

    @property
    def flags(self) -> tuple[str, ...]:
        """Nodes are called by their addresses: their names have no DNS records."""
        return (f"--egress-selector-config-file={self._settings}", "--kubelet-preferred-address-types=InternalIP")

    async def listen(self) -> asyncio.Server:
        through = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(self._socket)}}}
        document = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": through}],
        }
        self._settings.write_text(yaml.safe_dump(document))
        return await asyncio.start_unix_server(self._connect, self._socket)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            host, _, port = head.split()[1].rpartition(":")
            there, thither = await asyncio.open_connection(*self._target(host.strip("[]"), int(port)))
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_carry(reader, thither), _carry(there, writer))
        thither.close()
        writer.close()

    def _target(self, host: str, port: int) -> tuple[str, int]:
        if port == KUBELET_PORT and self.kubelets is not None:
            return "127.0.0.1", self.kubelets
        return host, port


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass on what comes, and that nothing more will; where one end is lost, so is the other."""
    try:
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
        sink.write_eof()
    except OSError:
        sink.close()


@asynccontextmanager
async def tunnel() -> AsyncIterator[Tunnel]:
    """A tunnel while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="dovetail-tunnel-") as folder:
        way = Tunnel(Path(folder))
        server = await way.listen()
        try:
            yield way
        finally:
            server.close()
