"""Load and metrics: the numbers that walk-throughs rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.kube.resources import DEPLOYMENTS, PODS, SERVICES
from dovetail.lab.kubelet.views import ContainerSpec
from dovetail.lab.load.model import load_of, on_curve, parse_curve
from tests.lab.workloads.manifests import deployment, pod

Run = Callable[..., None]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_hamster_uses_half_a_core() -> None:
    script = "while true; do timeout 0.5s yes >/dev/null; sleep 0.5s; done"
    hamster = ContainerSpec(
        name="h", image="registry.k8s.io/ubuntu-slim:0.1", command=("/bin/sh",), args=("-c", script)
    )
    assert load_of(hamster, {}).cpu_at(NOON) == 500


def test_annotations_win_over_the_image() -> None:
    spec = ContainerSpec(name="c", image="nginx")
    found = load_of(spec, {"lab.dovetail.dev/cpu": "250m", "lab.dovetail.dev/memory": "64Mi+1Mi/m"})
    assert (found.cpu_at(NOON), found.memory_at(60)) == (250, 65 * 1024**2)


def test_a_curve_is_straight_between_its_points_and_round_the_day() -> None:
    curve = parse_curve("6h=100m,18h=500m")
    assert on_curve(curve, 12 * 3600) == pytest.approx(300)
    assert on_curve(curve, 0) == pytest.approx(300)
    assert on_curve(curve, 18 * 3600) == pytest.approx(500)


def test_one_load_generator_drives_php_apache_to_its_limit(lab_run: Run) -> None:
    async def cpu(workload_lab: Any) -> list[str]:
        path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
        response = await workload_lab.kube.request("GET", path, (("labelSelector", "app=php-apache"),))
        items = msgspec.json.decode(response.body)["items"]
        return [container["usage"]["cpu"] for item in items for container in item["containers"]]

    async def body(workload_lab: Any) -> None:
        resources = {"limits": {"cpu": "500m"}, "requests": {"cpu": "200m"}}
        item = deployment("php-apache", 1, "registry.k8s.io/hpa-example", pod={"container": {"resources": resources}})
        await workload_lab.kube.create(DEPLOYMENTS, item)
        service = {
            "metadata": {"name": "php-apache"},
            "spec": {"selector": {"app": "php-apache"}, "ports": [{"port": 80}]},
        }
        await workload_lab.kube.create(SERVICES, service, "default")
        await asyncio.sleep(60)
        assert await cpu(workload_lab) == ["1000000n"]
        script = "while sleep 0.01; do wget -q -O- http://php-apache; done"
        await workload_lab.kube.create(
            PODS, pod("load", "busybox:1.28", container={"command": ["/bin/sh", "-c", script]})
        )
        await asyncio.sleep(60)
        assert await cpu(workload_lab) == ["500000000n"]
        await workload_lab.kube.patch(DEPLOYMENTS, "php-apache", {"spec": {"replicas": 7}}, "default")
        await asyncio.sleep(60)
        usages = await cpu(workload_lab)
        assert usages and all(90_000_000 < int(text.rstrip("n")) < 93_000_000 for text in usages)

    lab_run(body)
