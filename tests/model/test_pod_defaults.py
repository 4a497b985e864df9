"""A pod as the API server stores it, from what a manifest says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.model.pod_defaults import stored
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod, PodSpec


def _spec(**spec: Any) -> PodSpec:
    return msgspec.convert({"containers": [{"name": "c"}], **spec}, PodSpec)


def _limited(**limits: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": limits}}


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        (_spec(containers=[_limited(cpu="300m")]), {"cpu": 300}),
        (_spec(initContainers=[_limited(cpu="2")]), {"cpu": 2000}),
        (_spec(resources={"limits": {"cpu": "1500m"}}), {"cpu": 1500}),
        (_spec(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}), {"cpu": 1000}),
        (_spec(resources={"limits": {"cpu": "2"}}, containers=[_limited(cpu="300m")]), {"cpu": 300}),
    ],
)
def test_limits_stand_in_for_requests_that_nothing_makes(spec: PodSpec, asked: dict[str, int]) -> None:
    assert requests(Pod(spec=stored(spec))) == asked


def test_on_the_hosts_network_a_containers_ports_are_the_hosts() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]
    on_host = _spec(hostNetwork=True, containers=[{"name": "c", "ports": ports}])
    apart = _spec(containers=[{"name": "c", "ports": ports}])
    assert [port.host_port for port in stored(on_host).containers[0].ports] == [80, 8081]
    assert [port.host_port for port in stored(apart).containers[0].ports] == [0, 8081]


def test_what_says_everything_stays_what_it_is() -> None:
    spec = _spec(hostNetwork=True, containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}])
    assert stored(spec) is spec
