"""ProvisioningRequests: capacity that is found or provisioned all at once, booked for a while, and given up in time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from dovetail.autoscalers.node_groups.provisioning_requests import (
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
    CONSUME,
    EXPIRED,
    FOUND,
    NOT_FOUND,
    PodTemplate,
    ProvisioningRequest,
    RequestCondition,
    conditions,
    consumed,
    ended,
    is_booked,
    is_obsolete,
    is_open,
    pods_of,
)
from dovetail.autoscalers.node_groups.request_crd import definition
from dovetail.kube.errors import Invalid, NotFound
from dovetail.kube.resources import CRDS, NODES, PODTEMPLATES, PROVISIONINGREQUESTS
from dovetail.lab.simulated_groups import GroupSpec
from dovetail.model.meta import stamp, view
from tests.autoscalers.node_group_objects import NOW, iso, pod
from tests.autoscalers.test_node_group_autoscaler import World, play

FLAGS = ("--enable-provisioning-requests",)


def request(*verdicts: RequestCondition, at: datetime = NOW, class_name: str = CHECK_CAPACITY, count: int = 2) -> Any:
    bare: ProvisioningRequest = view(
        {
            "metadata": {"name": "r", "namespace": "default", "uid": "u", "creationTimestamp": iso(NOW)},
            "spec": {
                "provisioningClassName": class_name,
                "podSets": [{"count": count, "podTemplateRef": {"name": "t"}}],
            },
        },
        ProvisioningRequest,
    )
    listed = conditions(bare, verdicts, stamp(at))
    body = {"metadata": {"name": "r", "namespace": "default", "uid": "u", "creationTimestamp": iso(NOW)}}
    spec = {"provisioningClassName": class_name, "podSets": [{"count": count, "podTemplateRef": {"name": "t"}}]}
    return view({**body, "spec": spec, "status": {"conditions": listed}}, ProvisioningRequest)


def test_a_booking_lasts_ten_minutes_and_a_request_seven_days() -> None:
    assert is_open(request()) and not is_open(request(FOUND)) and is_open(request(NOT_FOUND))
    assert not is_open(request(class_name="queued-provisioning.gke.io"))
    booked = request(FOUND)
    assert is_booked(booked, NOW + timedelta(minutes=9))
    assert not is_booked(booked, NOW + timedelta(minutes=10))
    over = ended(booked, NOW + timedelta(minutes=10))
    assert over is not None and over.kind == "BookingExpired"
    assert ended(request(FOUND, over), NOW + timedelta(days=1)) is None
    assert ended(request(), NOW + timedelta(days=6)) is None
    assert ended(request(), NOW + timedelta(days=7)) == EXPIRED
    assert not is_obsolete(request(FOUND, over), NOW + timedelta(days=6))
    assert is_obsolete(request(FOUND, over), NOW + timedelta(days=7))


def test_a_condition_that_stays_keeps_its_time() -> None:
    first = request(NOT_FOUND)
    again = conditions(first, (NOT_FOUND,), stamp(NOW + timedelta(hours=1)))
    assert [each["lastTransitionTime"] for each in again] == [stamp(NOW)]
    turned = conditions(first, (FOUND,), stamp(NOW + timedelta(hours=1)))
    assert [(each["status"], each["lastTransitionTime"]) for each in turned] == [
        ("True", stamp(NOW + timedelta(hours=1)))
    ]


def test_pods_of_a_request_come_from_its_templates() -> None:
    template: PodTemplate = view(
        {
            "metadata": {"name": "t", "namespace": "default"},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}},
        },
        PodTemplate,
    )
    pods = pods_of(request(), {"default/t": template})
    assert isinstance(pods, list) and len(pods) == 2 and len({each.metadata.uid for each in pods}) == 2
    assert pods[0].metadata.labels == {"app": "x"} and consumed(pods[0]) == "r"
    assert pods_of(request(), {}) == "PodTemplate default/t does not exist"
    assert consumed(pod("p", annotations={"cluster-autoscaler.kubernetes.io/consume-provisioning-request": "old"})) == (
        "old"
    )


async def ask(world: World, name: str, class_name: str, count: int, **parameters: str) -> None:
    spec = {
        "provisioningClassName": class_name,
        "podSets": [{"count": count, "podTemplateRef": {"name": "worker"}}],
        "parameters": parameters,
    }
    await world.kube.create(PROVISIONINGREQUESTS, {"metadata": {"name": name}, "spec": spec}, "default")


async def install(world: World) -> None:
    await world.kube.create(CRDS, definition())
    resources = {"requests": {"cpu": "900m", "memory": "1Gi"}}
    template = {"spec": {"containers": [{"name": "c", "image": "worker", "resources": resources}]}}
    await world.kube.create(PODTEMPLATES, {"metadata": {"name": "worker"}, "template": template}, "default")
    await asyncio.sleep(35)  # until the watch has found the kind


async def state(world: World, name: str) -> dict[str, tuple[str, str]]:
    found = await world.kube.get(PROVISIONINGREQUESTS, name, "default")
    listed = (found.get("status") or {}).get("conditions") or []
    return {each["type"]: (each["status"], each["reason"]) for each in listed}


def test_check_capacity_tells_whether_there_is_room_and_books_it() -> None:
    async def body(world: World) -> None:
        await install(world)
        await ask(world, "fits", CHECK_CAPACITY, 2)
        await ask(world, "large", CHECK_CAPACITY, 9)
        await ask(world, "once", CHECK_CAPACITY, 9, noRetry="true")
        await asyncio.sleep(60)
        assert await state(world, "fits") == {
            "Accepted": ("True", "Accepted"),
            "Provisioned": ("True", "CapacityIsFound"),
        }
        assert (await state(world, "large"))["Provisioned"] == ("False", "CapacityIsNotFound")
        assert (await state(world, "once"))["Failed"] == ("True", "CapacityIsNotFound")
        assert world.groups.size("a") == 2
        await ask(world, "second", CHECK_CAPACITY, 3)  # there is room for four, and two are booked
        await asyncio.sleep(60)
        assert (await state(world, "second"))["Provisioned"] == ("False", "CapacityIsNotFound")
        await asyncio.sleep(1200)
        assert (await state(world, "second"))["Provisioned"] == ("True", "CapacityIsFound")
        assert (await state(world, "fits"))["BookingExpired"] == ("True", "BookingExpired")

    play(body, GroupSpec(name="a", min_size=2, max_size=3, size=2), flags=FLAGS)


def test_an_atomic_request_grows_one_group_for_all_of_its_pods_or_not_at_all() -> None:
    async def body(world: World) -> None:
        await install(world)
        await ask(world, "many", BEST_EFFORT_ATOMIC, 40)
        await asyncio.sleep(60)
        assert (await state(world, "many"))["Provisioned"] == ("False", "CapacityIsNotFound")
        assert world.groups.size("a") == 1
        await ask(world, "some", BEST_EFFORT_ATOMIC, 6)
        await asyncio.sleep(120)
        assert (await state(world, "some"))["Provisioned"] == ("True", "CapacityIsProvisioned")
        grown = world.groups.size("a")
        assert grown == 3
        await asyncio.sleep(60)
        assert world.groups.size("a") == grown, "asked for once"
        assert len((await world.kube.list(NODES)).items) == grown
        mark = {"annotations": {CONSUME: "some"}}
        await world.deploy("worker", 6, cpu="900m", memory="1Gi", pod_metadata=mark)
        await asyncio.sleep(60)
        assert await world.running_pods("worker") == 6 and world.groups.size("a") == grown

    play(body, GroupSpec(name="a", min_size=1, max_size=6, size=1), flags=FLAGS)


def test_a_request_without_its_template_fails_and_pods_that_consume_one_grow_nothing() -> None:
    async def body(world: World) -> None:
        await world.kube.create(CRDS, definition())
        await asyncio.sleep(35)
        await ask(world, "lost", CHECK_CAPACITY, 1)
        await asyncio.sleep(30)
        assert (await state(world, "lost"))["Failed"] == ("True", "FailedToCreatePods")
        await world.deploy("worker", 6, cpu="900m", pod_metadata={"annotations": {CONSUME: "lost"}})
        await asyncio.sleep(60)
        assert world.groups.size("a") == 1

    play(body, GroupSpec(name="a", min_size=1, max_size=6, size=1), flags=FLAGS)


def test_the_api_server_refuses_what_the_definition_forbids() -> None:
    async def body(world: World) -> None:
        await world.kube.create(CRDS, definition())
        await asyncio.sleep(1)
        with pytest.raises(Invalid):
            await ask(world, "none", CHECK_CAPACITY, 0)
        await ask(world, "fixed", CHECK_CAPACITY, 1)
        with pytest.raises(Invalid, match="immutable"):
            await world.kube.patch(
                PROVISIONINGREQUESTS, "fixed", {"spec": {"provisioningClassName": BEST_EFFORT_ATOMIC}}, "default"
            )

    play(body, GroupSpec(name="a", min_size=1, size=1), flags=FLAGS)


def test_old_requests_are_deleted() -> None:
    async def body(world: World) -> None:
        await install(world)
        await ask(world, "fits", CHECK_CAPACITY, 1)
        await asyncio.sleep(15 * 60)
        assert "BookingExpired" in await state(world, "fits")
        loop = world.running.autoscaler
        assert loop is not None and loop.requests is not None
        await loop.requests.end_expired(world.lab.clock.now() + timedelta(days=8))
        with pytest.raises(NotFound):
            await state(world, "fits")

    play(body, GroupSpec(name="a", min_size=1, max_size=3, size=1), flags=FLAGS)
