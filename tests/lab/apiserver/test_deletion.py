"""Deleting: grace, finalizers, propagation, collections, garbage."""

from __future__ import annotations

import asyncio
from datetime import datetime

from dovetail.lab.apiserver.garbage_collector import Collector
from tests.lab.apiserver.requests import CONFIGMAPS, MERGE, PODS, Api, Json, ask, configmap, pod


def test_an_unscheduled_pod_goes_at_once_and_a_scheduled_one_waits() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", PODS, pod("free"))
        gone = await api.ok("DELETE", f"{PODS}/free")
        assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
        assert (await api("GET", f"{PODS}/free"))[0] == 404
        await api.ok("POST", PODS, pod("bound", nodeName="n"))
        held = await api.ok("DELETE", f"{PODS}/bound")
        assert held["metadata"]["deletionGracePeriodSeconds"] == 30
        longer = await api.ok("DELETE", f"{PODS}/bound?gracePeriodSeconds=60")
        assert longer["metadata"]["deletionGracePeriodSeconds"] == 30
        await api.ok("DELETE", f"{PODS}/bound?gracePeriodSeconds=0")
        assert (await api("GET", f"{PODS}/bound"))[0] == 404

    ask(scenario)


def test_a_finalizer_holds_the_object_until_it_is_removed() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", CONFIGMAPS, configmap("f", finalizers=["a.b/c"]))
        held = await api.ok("DELETE", f"{CONFIGMAPS}/f")
        code, answer = await api("POST", CONFIGMAPS, configmap("f"))
        assert (code, answer["message"]) == (409, 'object is being deleted: configmaps "f" already exists')
        last = await api.ok("PATCH", f"{CONFIGMAPS}/f", {"metadata": {"finalizers": None}}, content_type=MERGE)
        assert last["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
        assert (await api("GET", f"{CONFIGMAPS}/f"))[0] == 404

    ask(scenario)


def test_a_collection_answers_with_what_it_deleted() -> None:
    async def scenario(api: Api) -> None:
        for name, label in (("a", "1"), ("b", "2"), ("c", "1")):
            await api.ok("POST", CONFIGMAPS, configmap(name, labels={"x": label}))
        gone = await api.ok("DELETE", f"{CONFIGMAPS}?labelSelector=x%3D1")
        assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
        left = await api.ok("GET", CONFIGMAPS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["b"]

    ask(scenario)


async def _family(api: Api) -> None:
    owner = await api.ok("POST", CONFIGMAPS, configmap("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    await api.ok("POST", CONFIGMAPS, configmap("child", ownerReferences=[reference]))


def test_dependants_go_after_their_owner() -> None:
    async def scenario(api: Api) -> None:
        Collector(api.server).start()
        await _family(api)
        await api.ok("DELETE", f"{CONFIGMAPS}/owner")
        await asyncio.sleep(1)
        assert (await api("GET", f"{CONFIGMAPS}/child"))[0] == 404

    ask(scenario)


def test_in_the_foreground_the_owner_goes_last() -> None:
    async def scenario(api: Api) -> None:
        Collector(api.server).start()
        await _family(api)
        body = {"metadata": {"finalizers": ["hold.it/on"]}}
        await api.ok("PATCH", f"{CONFIGMAPS}/child", body, content_type=MERGE)
        await api.ok("DELETE", f"{CONFIGMAPS}/owner", {"propagationPolicy": "Foreground"})
        await asyncio.sleep(1)
        assert (await api("GET", f"{CONFIGMAPS}/owner"))[0] == 200
        await api.ok("PATCH", f"{CONFIGMAPS}/child", {"metadata": {"finalizers": None}}, content_type=MERGE)
        await asyncio.sleep(1)
        assert (await api("GET", f"{CONFIGMAPS}/owner"))[0] == 404

    ask(scenario)


def test_orphans_stay_and_forget_their_owner() -> None:
    async def scenario(api: Api) -> None:
        Collector(api.server).start()
        await _family(api)
        await api.ok("DELETE", f"{CONFIGMAPS}/owner", {"propagationPolicy": "Orphan"})
        await asyncio.sleep(1)
        child = await api.ok("GET", f"{CONFIGMAPS}/child")
        assert "ownerReferences" not in child["metadata"]
        assert (await api("GET", f"{CONFIGMAPS}/owner"))[0] == 404

    ask(scenario)


def test_a_shorter_grace_counts_from_the_first_deletion() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", PODS, pod("p", nodeName="n"))
        first = await api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=60")
        await asyncio.sleep(20)
        shorter = await api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=30")
        moved = _seconds(first) - _seconds(shorter)
        assert (moved, shorter["metadata"]["deletionGracePeriodSeconds"]) == (30.0, 30)
        passed = await api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=10")
        assert passed["metadata"]["deletionGracePeriodSeconds"] == 1

    ask(scenario)


def _seconds(obj: Json) -> float:
    return datetime.fromisoformat(obj["metadata"]["deletionTimestamp"]).timestamp()
