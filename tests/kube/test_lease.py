"""Leader election: at most one leader writes, whatever sleeps, breaks or lies."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.client import Kube
from dovetail.kube.errors import Disconnected
from dovetail.kube.lease import LeaderElection, LeadershipLost, LeaseTimes
from dovetail.kube.resources import PODS
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess


class LeaseServer:
    """One Lease with optimistic concurrency. `cut` names the identities it does not answer."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.cut: set[str] = set()
        self.writers: list[str] = []
        self.reads = 0
        self.delay = 0.01

    async def handle(self, request: Request) -> Response:
        who = request.headers["x-who"]
        await asyncio.sleep(self.delay)
        if who in self.cut:
            raise Disconnected("cut off")
        if "/leases" not in request.path:
            self.writers.append(who)
            return _answer(200, {})
        if request.method == "GET":
            self.reads += 1
            return _answer(200, self.lease) if self.lease else _answer(404, {"kind": "Status", "reason": "NotFound"})
        body = msgspec.json.decode(request.body)
        if request.method == "POST" and self.lease is not None:
            return _answer(409, {"kind": "Status", "reason": "AlreadyExists"})
        if request.method == "PUT" and body["metadata"].get("resourceVersion") != str(self.version):
            return _answer(409, {"kind": "Status", "reason": "Conflict"})
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return _answer(200, body)

    def kube(self, who: str) -> Kube:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        return Kube(InProcess(self, {"x-who": who}), clock, chance=Chance(len(who)))


def _answer(code: int, body: Any) -> Response:
    return Response(status=code, body=msgspec.json.encode(body))


def test_the_first_leads_and_the_second_waits_until_it_is_let_go() -> None:
    async def main() -> list[str]:
        server = LeaseServer()
        order: list[str] = []

        async def lead(who: str, seconds: float) -> None:
            order.append(f"{who} at {asyncio.get_running_loop().time():.0f}")
            await asyncio.sleep(seconds)

        async def candidate(who: str, seconds: float) -> None:
            await LeaderElection(server.kube(who), "lock", "kube-system", who).run(lambda: lead(who, seconds))

        first = asyncio.create_task(candidate("a", 100))
        await asyncio.sleep(1)
        await asyncio.gather(first, candidate("b", 1))
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == ""
        return order

    order = run_virtual(main())
    assert order[0] == "a at 0"
    assert order[1].startswith("b at 10")


def test_a_leader_that_is_cut_off_stops_before_another_may_start() -> None:
    async def main() -> tuple[float, float]:
        server = LeaseServer()
        times: dict[str, float] = {}
        loop = asyncio.get_running_loop()

        async def lead(who: str) -> None:
            times[f"{who} starts"] = loop.time()
            try:
                await asyncio.sleep(1e6)
            finally:
                times[f"{who} stops"] = loop.time()

        a = LeaderElection(server.kube("a"), "lock", "kube-system", "a")
        b = LeaderElection(server.kube("b"), "lock", "kube-system", "b")
        first = asyncio.create_task(a.run(lambda: lead("a")))
        await asyncio.sleep(5)
        second = asyncio.create_task(b.run(lambda: lead("b")))
        await asyncio.sleep(30)
        server.cut.add("a")
        with pytest.raises(LeadershipLost):
            await first
        await asyncio.sleep(20)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert b.token == a.token + 1
        return times["a stops"], times["b starts"]

    stopped, started = run_virtual(main())
    assert stopped < started


def test_a_leader_renews_what_it_knows_and_reads_only_what_others_wrote() -> None:
    async def main() -> None:
        server = LeaseServer()
        kube = server.kube("a")
        election = LeaderElection(kube, "lock", "kube-system", "a")
        leading = asyncio.create_task(election.run(lambda: asyncio.sleep(61)))
        await asyncio.sleep(30)
        assert server.reads == 1
        assert server.lease is not None
        server.version += 1
        server.lease["metadata"] |= {"resourceVersion": str(server.version), "labels": {"touched": "yes"}}
        await asyncio.sleep(30)
        assert server.reads == 2
        assert election.leading
        assert server.lease["metadata"]["labels"] == {"touched": "yes"}
        await leading

    run_virtual(main())


def test_leadership_is_counted_from_when_a_renewal_was_sent_however_late_its_answer_comes() -> None:
    """The others count from when the server took it: a slow answer must not make us lead for longer than they wait."""

    async def main() -> None:
        server = LeaseServer()
        server.delay = 6.0
        election = LeaderElection(server.kube("a"), "lock", "kube-system", "a", LeaseTimes(60.0, 20.0, 2.0))
        await election.acquire()
        assert asyncio.get_running_loop().time() == 12.0  # one read, one write
        await asyncio.sleep(7.9)
        assert election.leading
        await asyncio.sleep(0.2)
        assert not election.leading

    run_virtual(main())


def test_the_fence_refuses_a_write_of_a_leader_that_slept_too_long() -> None:
    async def main() -> None:
        server = LeaseServer()
        kube = server.kube("a")
        election = LeaderElection(kube, "lock", "kube-system", "a")
        await election.acquire()
        fenced = kube.fenced(election.check)
        await fenced.delete(PODS, "x", "default")
        await asyncio.sleep(10.5)
        with pytest.raises(LeadershipLost, match="a is not the leader"):
            await fenced.delete(PODS, "x", "default")
        assert server.writers == ["a"]

    run_virtual(main())


def test_a_lease_that_another_client_stole_is_not_fought_over() -> None:
    async def main() -> None:
        server = LeaseServer()
        election = LeaderElection(server.kube("a"), "lock", "kube-system", "a")

        async def steal() -> None:
            await asyncio.sleep(20)
            assert server.lease is not None
            server.version += 1
            server.lease["metadata"]["resourceVersion"] = str(server.version)
            server.lease["spec"]["holderIdentity"] = "thief"

        thief = asyncio.create_task(steal())
        with pytest.raises(LeadershipLost):
            await election.run(lambda: asyncio.sleep(1e6))
        await thief
        assert asyncio.get_running_loop().time() < 25
        assert election.holder == "thief"

    run_virtual(main())


def test_what_the_leader_raises_is_raised() -> None:
    async def main() -> None:
        async def lead() -> None:
            raise KeyError("bug")

        with pytest.raises(KeyError):
            await LeaderElection(LeaseServer().kube("a"), "lock", "kube-system", "a").run(lead)

    run_virtual(main())


def test_times_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="duration > deadline > retry"):
        LeaseTimes(duration=5, deadline=10, retry=2)
