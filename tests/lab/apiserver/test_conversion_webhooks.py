"""Conversion webhooks: what is written once stays written once, a list costs one call, a lie loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from dovetail.lab.apiserver.server_state import WebhookAnswer
from tests.conformance.corpus.conversions import definition, first, second
from tests.conformance.scripted_conversions import GROUP, convert
from tests.lab.apiserver.requests import CONFIGMAPS, MERGE, Api, ask, configmap

Json = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
V1, V2 = (f"/apis/{GROUP}/{version}/namespaces/default/widgets" for version in ("v1", "v2"))


class Converting:
    """A webhook outside of the server; `script` says how it answers, `asked` what it was asked."""

    def __init__(self, api: Api, script: str = "convert") -> None:
        self.script = script
        self.asked: list[Json] = []
        api.server.post = self.post

    async def post(self, url: str, body: bytes, **connection: Any) -> WebhookAnswer:
        review = msgspec.json.decode(body)
        self.asked.append(review["request"])
        if self.script == "hang":
            await asyncio.sleep(1000)
        return await convert(self.script, review)


async def serve(api: Api) -> None:
    made = definition("widgets", "convert", clientConfig={"url": "https://converter.example.com"})
    await api.ok("POST", CRDS, made)


def test_an_object_written_in_another_version_is_stored_once() -> None:
    async def scenario(api: Api) -> None:
        webhook = Converting(api)
        await serve(api)
        made = await api.ok("POST", V2, second("widgets", "b"))
        assert made["spec"] == {"hostPort": "g:81"}
        stored = await api.ok("GET", V1)
        assert [(item["metadata"]["uid"], item["spec"]) for item in stored["items"]] == [
            (made["metadata"]["uid"], {"host": "g", "port": "81"})
        ]
        changed = await api.ok("PATCH", f"{V2}/b", {"spec": {"hostPort": "i:82"}}, content_type=MERGE)
        assert changed["metadata"]["generation"] == 2
        assert webhook.asked

    ask(scenario)


def test_a_list_in_another_version_costs_one_call_and_then_none() -> None:
    async def scenario(api: Api) -> None:
        webhook = Converting(api)
        await serve(api)
        for number in range(30):
            await api.ok("POST", V1, first("widgets", f"a{number}"))
        assert webhook.asked == []
        for _ in range(2):
            items = (await api.ok("GET", V2))["items"]
            assert {item["spec"]["hostPort"] for item in items} == {"h:80"}
        assert [len(request["objects"]) for request in webhook.asked] == [30]

    ask(scenario)


def test_a_webhook_that_fails_stores_nothing_and_says_why() -> None:
    async def scenario(api: Api) -> None:
        webhook = Converting(api, "convert-failed")
        await serve(api)
        code, document = await api("POST", V2, second("widgets", "b"))
        text = f"conversion webhook for {GROUP}/v2, Kind=Widget failed: it cannot be"
        assert (code, document["message"]) == (500, text)
        assert (await api.ok("GET", V1))["items"] == []
        webhook.script = "convert"
        await api.ok("POST", V2, second("widgets", "b"))

    ask(scenario)


def test_a_webhook_that_hangs_costs_its_timeout_and_no_other_request_waits() -> None:
    async def scenario(api: Api) -> None:
        webhook = Converting(api)
        await serve(api)
        await api.ok("POST", V1, first("widgets", "a"))
        webhook.script = "hang"
        loop = asyncio.get_running_loop()
        begin = loop.time()
        read = asyncio.create_task(api("GET", f"{V2}/a"))
        await asyncio.sleep(0)
        await api.ok("POST", CONFIGMAPS, configmap("x"))
        assert loop.time() == begin and not read.done()
        code, document = await read
        assert code == 500 and "context deadline exceeded" in document["message"]
        assert 30 <= loop.time() - begin < 31
        assert (await api.ok("GET", f"{V1}/a"))["spec"] == {"host": "h", "port": "80"}

    ask(scenario)


def test_objects_stored_before_the_storage_version_changed_are_converted_when_they_are_read() -> None:
    async def scenario(api: Api) -> None:
        Converting(api)
        await serve(api)
        await api.ok("POST", V1, first("widgets", "a"))
        later = definition("widgets", "convert", "v2", clientConfig={"url": "https://converter.example.com"})
        versions = {"spec": {"versions": later["spec"]["versions"]}}
        await api.ok("PATCH", f"{CRDS}/widgets.{GROUP}", versions, content_type=MERGE)
        assert (await api.ok("GET", f"{V2}/a"))["spec"]["hostPort"] == "h:80"
        assert (await api.ok("GET", f"{V1}/a"))["spec"] == {"host": "h", "port": "80"}
        assert [item["spec"]["hostPort"] for item in (await api.ok("GET", V2))["items"]] == ["h:80"]

    ask(scenario)
