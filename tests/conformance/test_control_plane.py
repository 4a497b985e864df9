"""The real control plane as the lab starts it: parts on request, and nothing left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dovetail.clock import Clock
from dovetail.kube import config
from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.lease import LeaderElection
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, NODES, PODS
from dovetail.lab.real_control_plane import RealControlPlane, StartFailed


def test_a_missing_binary_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))

    async def main() -> None:
        async with RealControlPlane():
            pass

    with pytest.raises(StartFailed, match="make kubernetes builds it"):
        asyncio.run(main())


@pytest.mark.kubernetes
def test_scheduler_and_controllers_run_and_everything_ends() -> None:
    async def main() -> tuple[Path, str]:
        async with RealControlPlane(scheduler=True, controllers=True) as plane:
            kube = Kube(config.load(plane.kubeconfig).transport(), Clock(asyncio.get_running_loop()))
            node = {"metadata": {"name": "n1"}, "spec": {"taints": []}}
            await kube.create(NODES, node)
            await kube.patch(NODES, "n1", {"spec": {"taints": None}})
            ready = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2036-01-01T00:00:00Z"}]
            room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
            status = {"status": {"conditions": ready, "capacity": room, "allocatable": room}}
            await kube.patch(NODES, "n1", status, subresource="status")
            box = [{"name": "c", "image": "x"}]
            template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": box}}
            spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
            await kube.create(DEPLOYMENTS, {"metadata": {"name": "d", "namespace": "default"}, "spec": spec})
            async with asyncio.timeout(40):
                async for event in kube.watch(PODS, "default"):
                    if event.object.get("spec", {}).get("nodeName"):
                        break
            await kube.close()
            return plane.folder, str(event.object["spec"]["nodeName"])

    folder, placed = asyncio.run(main())
    assert placed == "n1"
    assert not folder.exists()


@pytest.mark.kubernetes
def test_users_have_the_rights_their_groups_give_them() -> None:
    async def main() -> None:
        async with RealControlPlane(users={"viewer-token": ("viewer", ["people"])}) as plane:
            kube = Kube(plane.transport("viewer-token"), Clock(asyncio.get_running_loop()))
            with pytest.raises(Forbidden, match='User "viewer" cannot list resource "nodes"'):
                await kube.list(NODES)
            await kube.close()

    asyncio.run(main())


@pytest.mark.kubernetes
def test_the_client_runtime_works_against_the_real_server() -> None:
    """Reflector, events and leases, which the scripted tests cover case by case, on the real thing."""

    async def main() -> list[str]:
        async with RealControlPlane() as plane:
            kube = Kube(plane.transport(), Clock(asyncio.get_running_loop()))
            changes: list[str] = []
            gone = asyncio.Event()

            def hear(change: CacheChange) -> None:
                changes.append(f"{change.kind} {change.key}")
                if change.kind == "deleted":
                    gone.set()

            reflector = Reflector(kube, NODES, on_event=hear)
            recorder = EventRecorder(kube, "dovetail")
            tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(recorder.run())]
            await reflector.synced.wait()
            election = LeaderElection(kube, "dovetail", "kube-system", "me")
            await election.acquire()
            writer = kube.fenced(election.check)
            await writer.create(NODES, {"metadata": {"name": "n1"}})
            last = await writer.delete(NODES, "n1")
            for _ in range(3):
                recorder.record(InvolvedObject("Node", "n1"), "Normal", "Removed", "it went")
            await recorder.flush()
            events = await kube.list(CORE_EVENTS, "default", fields="involvedObject.name=n1")
            assert [event["count"] for event in events.items] == [3]
            assert last["status"] == "Success"
            await election.release()
            async with asyncio.timeout(10):
                await gone.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await kube.close()
            return changes

    changes = asyncio.run(main())
    assert changes[0] == "added n1"
    assert changes[-1] == "deleted n1"
