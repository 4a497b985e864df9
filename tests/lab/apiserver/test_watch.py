"""Watching: order, selectors, bookmarks, the past."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.lab.apiserver.requests import CONFIGMAPS, MERGE, TABLE, Api, ask, configmap

Json = dict[str, Any]


async def _collect(api: Api, url: str) -> list[Json]:
    return [event async for event in api.watch(url)]


def _changes(events: list[Json]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_a_watch_delivers_every_change_in_order() -> None:
    async def scenario(api: Api) -> None:
        watching = asyncio.create_task(_collect(api, f"{CONFIGMAPS}?watch=true&timeoutSeconds=5"))
        await asyncio.sleep(0.1)
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        await api.ok("PATCH", f"{CONFIGMAPS}/a", {"data": {"x": "1"}}, content_type=MERGE)
        await api.ok("PATCH", f"{CONFIGMAPS}/a", {"data": {"x": "1"}}, content_type=MERGE)
        await api.ok("DELETE", f"{CONFIGMAPS}/a")
        events = await watching
        assert _changes(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))

    ask(scenario)


def test_leaving_the_selector_is_a_deletion_with_the_old_content() -> None:
    async def scenario(api: Api) -> None:
        url = f"{CONFIGMAPS}?watch=true&timeoutSeconds=5&labelSelector=x%3D1"
        watching = asyncio.create_task(_collect(api, url))
        await asyncio.sleep(0.1)
        await api.ok("POST", CONFIGMAPS, configmap("a", labels={"x": "1"}))
        changed = await api.ok("PUT", f"{CONFIGMAPS}/a", configmap("a", labels={"x": "2"}))
        events = await watching
        assert _changes(events) == [("ADDED", "a"), ("DELETED", "a")]
        gone = events[1]["object"]["metadata"]
        assert gone["labels"] == {"x": "1"}
        assert gone["resourceVersion"] == changed["metadata"]["resourceVersion"]

    ask(scenario)


def test_initial_events_end_with_a_bookmark() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        query = "watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        events = await _collect(api, f"{CONFIGMAPS}?{query}&allowWatchBookmarks=true")
        assert _changes(events) == [("ADDED", "a"), ("BOOKMARK", "")]
        assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    ask(scenario)


def test_a_watch_resumes_where_it_was() -> None:
    async def scenario(api: Api) -> None:
        first = await api.ok("POST", CONFIGMAPS, configmap("a"))
        await api.ok("POST", CONFIGMAPS, configmap("b"))
        version = first["metadata"]["resourceVersion"]
        events = await _collect(api, f"{CONFIGMAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}")
        assert _changes(events) == [("ADDED", "b")]

    ask(scenario)


def test_a_past_that_is_gone_is_an_error_event() -> None:
    async def scenario(api: Api) -> None:
        first = await api.ok("POST", CONFIGMAPS, configmap("a"))
        for index in range(4):
            await asyncio.sleep(400)
            await api.ok("PUT", f"{CONFIGMAPS}/a", configmap("a", {"n": str(index)}))
        version = first["metadata"]["resourceVersion"]
        events = await _collect(api, f"{CONFIGMAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}")
        assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]
        code, answer = await api("GET", f"{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert (code, answer["reason"]) == (410, "Expired")

    ask(scenario)


def test_two_hundred_watchers_share_one_frame() -> None:
    async def scenario(api: Api) -> None:
        url = f"{CONFIGMAPS}?watch=true&timeoutSeconds=2"
        watching = [asyncio.create_task(_collect(api, url)) for _ in range(200)]
        await asyncio.sleep(0.1)
        for index in range(5):
            await api.ok("POST", CONFIGMAPS, configmap(f"c{index}"))
        changes = {tuple(_changes(await each)) for each in watching}
        assert changes == {tuple(("ADDED", f"c{index}") for index in range(5))}

    ask(scenario)


def test_a_table_watch_describes_its_columns_once() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", CONFIGMAPS, configmap("a", {"x": "1"}))
        await api.ok("POST", CONFIGMAPS, configmap("b"))
        response = await api.raw("GET", f"{CONFIGMAPS}?watch=true&timeoutSeconds=1", accept=TABLE)
        assert response.stream is not None
        import msgspec

        events = [msgspec.json.decode(frame) async for frame in response.stream]
        assert [event["object"]["rows"][0]["cells"] for event in events] == [["a", 1, "0s"], ["b", 0, "0s"]]
        assert events[0]["object"]["columnDefinitions"] and events[1]["object"]["columnDefinitions"] is None

    ask(scenario)
