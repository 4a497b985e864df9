"""Flags that the programs of node groups and VPA share: addresses to serve at, rates, lease times."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import aiohttp
import pytest

from dovetail.autoscalers.go_flags import FlagError, listen_address
from dovetail.autoscalers.node_groups import flags as node_groups
from dovetail.autoscalers.vpa.loops import at_intervals
from dovetail.autoscalers.vpa.metrics import UpdaterMetrics, serving
from dovetail.autoscalers.vpa.settings import admission_settings, recommender_settings, updater_settings
from dovetail.clock import Clock, run_scaled, run_virtual
from dovetail.kube.lease import LeadershipLost

PROGRAMS: dict[str, Callable[[list[str]], Any]] = {
    "cluster-autoscaler": node_groups.parse,
    "recommender": lambda flags: recommender_settings(flags, {}),
    "updater": lambda flags: updater_settings(flags, {}),
    "admission-controller": lambda flags: admission_settings(flags, {}),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        (":8085", (None, 8085)),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_to_serve_at(text: str, expected: tuple[str | None, int] | None) -> None:
    assert listen_address("address", text) == expected


@pytest.mark.parametrize("text", ["foo", ":", ":x", ":-1", ":65536", "::1:80", "localhost", ":٣"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrong_address_is_refused_at_the_start(program: str, text: str) -> None:
    with pytest.raises(FlagError, match="--address="):
        PROGRAMS[program]([f"--address={text}"])


@pytest.mark.parametrize("rate", ["nan", "inf", "-1", "0"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_rate_is_a_number_above_zero(program: str, rate: str) -> None:
    name = "kube-client-qps" if program == "cluster-autoscaler" else "kube-api-qps"
    with pytest.raises(FlagError, match=name):
        PROGRAMS[program]([f"--{name}={rate}"])


@pytest.mark.parametrize("program", ["cluster-autoscaler", "recommender", "updater"])
def test_lease_times_that_do_not_fit_together_are_refused(program: str) -> None:
    with pytest.raises(FlagError, match="leader-elect-lease-duration"):
        PROGRAMS[program](["--leader-elect-lease-duration=1s"])


def test_a_port_of_the_webhook_has_a_range() -> None:
    with pytest.raises(FlagError, match="--port=70000"):
        admission_settings(["--port=70000"], {})


def test_metrics_are_served_on_ipv4_and_ipv6() -> None:
    """A pod of an IPv6 cluster has no other address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

    async def main() -> list[int]:
        metrics = UpdaterMetrics(Clock(asyncio.get_running_loop()), 60.0)
        async with serving(f":{port}", metrics), aiohttp.ClientSession() as session:
            answers = []
            for host in ("127.0.0.1", "[::1]"):
                async with session.get(f"http://{host}:{port}/health-check") as answer:
                    answers.append(answer.status)
            return answers

    assert run_scaled(main()) == [200, 200]


def test_a_loop_that_fails_goes_on() -> None:
    """An unexpected error of one call; only lost leadership ends the loop."""
    calls = 0

    async def act() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a defect")
        if calls == 3:
            raise LeadershipLost("another leads")

    async def main() -> None:
        await at_intervals(Clock(asyncio.get_running_loop()), 10.0, act)

    with pytest.raises(LeadershipLost):
        run_virtual(main())
    assert calls == 3
