"""The screen over a real observer of a cluster, and what it explains."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dovetail.chance import Chance
from dovetail.cli.view import source_of
from dovetail.clock import Clock, run_virtual
from dovetail.kube.client import Kube
from dovetail.kube.resources import NAMESPACES, NODES, PODS
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.tui.explanation import SelectedObject, explanation
from dovetail.tui.tables import TableLook
from dovetail.tui.text import once
from dovetail.view.observer import NOT_ASKED, Observer

LABELS = {
    "node.kubernetes.io/instance-type": "m5.4xlarge",
    "topology.kubernetes.io/region": "ap-northeast-2",
    "topology.kubernetes.io/zone": "ap-northeast-2a",
    "eks.amazonaws.com/capacityType": "ON_DEMAND",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
}


async def _fill(kube: Kube, **labels: str) -> None:
    with suppress(Exception):
        await kube.create(NAMESPACES, {"metadata": {"name": "default"}})
    amounts = {"cpu": "15890m", "memory": "57Gi", "pods": "234"}
    ready = [{"type": "Ready", "status": "True"}]
    node = {
        "metadata": {"name": "n1", "labels": {**LABELS, **labels}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
    }
    await kube.create(NODES, node)
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    for name, spec in (("web", {"nodeName": "n1"}), ("waits", {})):
        manifest: dict[str, Any] = {"metadata": {"name": name, "namespace": "default"}}
        await kube.create(PODS, {**manifest, "spec": {"containers": [container], **spec}})


def _observed(**labels: str) -> tuple[list[str], list[str]]:
    async def main() -> tuple[list[str], list[str]]:
        clock = Clock(asyncio.get_running_loop())
        server = ApiServer(clock, Chance(1))
        await _fill(Kube(InProcess(server), clock, chance=Chance(2)), **labels)
        observer = Observer(Kube(InProcess(server), clock, chance=Chance(3)), clock)
        watching = asyncio.create_task(observer.run())
        await observer.ready.wait()
        await observer.settle(10.0)
        source = source_of(observer)
        text = list(once(source.view(), TableLook(source.now()), 80))
        row = observer.view.pending["default/waits"]
        why = list(explanation(SelectedObject("pod", "default/waits"), row, source.evidence, source.now()))
        assert observer.view.health.metrics != NOT_ASKED
        watching.cancel()
        await asyncio.wait([watching])
        return text, why

    return run_virtual(main())


def test_a_cluster_without_our_kinds_is_shown_and_explained() -> None:
    text, why = _observed()
    assert text[0].startswith("1 node   1 pod   1 pending")
    assert "$0.94" in text[1]
    assert why[0].startswith("pod/default/waits ")
    assert any("cpu 0.5" in line for line in why)


def test_a_spot_node_that_we_did_not_launch_has_no_price() -> None:
    text, _ = _observed(**{"eks.amazonaws.com/capacityType": "SPOT"})
    assert text[1].startswith("?/hour ?/month   1 price unknown")
