"""A real control plane with kube-scheduler, recorded and replayed in the lab: the same at every minute."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.kube.resources import DEPLOYMENTS, NODES
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.real_control_plane import RealControlPlane
from dovetail.offline.recorder import Recorder
from dovetail.offline.recording import Writer, read
from dovetail.studies.recorded.replay import ReplayOptions, replay
from tests.lab.workloads.manifests import deployment

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(900)]

PODS = 1000
#: So much CPU that four nodes hold half of the pods: the others wait until four more join.
REQUEST = "110m"
#: How long they wait: on a busy computer kube-scheduler takes seconds to bind them all, which must be few beside it.
WAIT_S = 150


async def _story(lab: Lab) -> None:
    """A thousand pods up while nodes are missing, most of them down, a rolling update, a lost node."""
    await lab.nodes(4, "m5.4xlarge")
    body = deployment(replicas=PODS)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": REQUEST}}
    await lab.kube.create(DEPLOYMENTS, body)
    await asyncio.sleep(WAIT_S)
    await lab.nodes(4, "m5.4xlarge")
    await asyncio.sleep(45)
    await lab.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 300}}, "default")
    await asyncio.sleep(20)
    change = {"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}}
    await lab.kube.patch(DEPLOYMENTS, "web", change, "default")
    await asyncio.sleep(40)
    lost = sorted(lab.fleet.seats)[0]
    lab.fleet.vanish(lost)
    await asyncio.sleep(65)
    await lab.kube.delete(NODES, lost)
    await asyncio.sleep(100)


async def _record(target: Path) -> None:
    clock = Clock(asyncio.get_running_loop())
    async with RealControlPlane(scheduler=True, controllers=True) as plane:
        transport = plane.transport()
        try:
            lab = Lab(transport, clock, Chance(1), LabParts(controllers=False, scheduler=False))
            async with lab:
                writer = Writer.create(target, clock.now(), "control plane", b"real control pla")
                recorder = Recorder(lab.client("recorder"), writer)
                lab.add(lambda _: recorder.run())
                await recorder.begun.wait()
                await _story(lab)
                writer.close(clock.now())
        finally:
            await transport.close()


def test_a_real_control_plane_replayed_is_as_it_was_at_every_minute(tmp_path: Path) -> None:
    """Node count, price and pending time within 5 %."""
    run_scaled(_record(tmp_path / "real.dvrec"))
    recording = read(tmp_path / "real.dvrec")
    outcome = replay(recording, ReplayOptions(interval_s=60.0), tmp_path / "replay.dvrec")
    before, after = outcome.recorded, outcome.replayed
    assert before.pods > PODS and len(before.samples) == len(after.samples) >= 5
    assert before.samples[-1].waited > 10_000  # the pods that waited for nodes
    apart = [
        f"{ours.at:g} s {field}: {getattr(theirs, field)} became {getattr(ours, field)}"
        for theirs, ours in zip(before.samples, after.samples, strict=True)
        for field in ("nodes", "rate", "waited")
        if abs(getattr(ours, field) - getattr(theirs, field)) > 0.05 * max(getattr(theirs, field), 1.0)
    ]
    assert apart == [], outcome.first_difference
    assert before.evictions > 0  # those of the lost node
    assert abs(after.evictions - before.evictions) <= 0.05 * before.evictions
