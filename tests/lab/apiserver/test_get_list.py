"""Reading: pages, versions, forms, refusals."""

from __future__ import annotations

import pytest

from dovetail.lab.apiserver import get_list
from tests.lab.apiserver.requests import CONFIGMAPS, PODS, TABLE, Api, ask, configmap, pod


def test_all_pages_show_the_first_page_s_snapshot() -> None:
    async def scenario(api: Api) -> None:
        for name in "abcde":
            await api.ok("POST", CONFIGMAPS, configmap(name))
        first = await api.ok("GET", f"{CONFIGMAPS}?limit=2")
        assert first["metadata"]["remainingItemCount"] == 3
        await api.ok("DELETE", f"{CONFIGMAPS}/d")
        await api.ok("POST", CONFIGMAPS, configmap("cc"))
        names, page = [], first
        while True:
            names += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue")
            if not token:
                break
            page = await api.ok("GET", f"{CONFIGMAPS}?limit=2&continue={token}")
            assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert names == list("abcde")

    ask(scenario)


def test_items_of_built_in_lists_carry_no_kind() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        listing = await api.ok("GET", CONFIGMAPS)
        assert listing["kind"] == "ConfigMapList" and "kind" not in listing["items"][0]

    ask(scenario)


def test_a_version_from_the_future_times_out() -> None:
    async def scenario(api: Api) -> None:
        code, answer = await api("GET", f"{CONFIGMAPS}?resourceVersion=999999")
        assert code == 504
        assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    ask(scenario)


def test_field_selectors_choose_pods_by_node_and_phase() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", PODS, pod("here", nodeName="n1"))
        await api.ok("POST", PODS, pod("there"))
        listing = await api.ok("GET", f"{PODS}?fieldSelector=spec.nodeName%3Dn1,status.phase!%3DFailed")
        assert [item["metadata"]["name"] for item in listing["items"]] == ["here"]
        code, answer = await api("GET", f"{PODS}?fieldSelector=spec.x%3D1")
        assert (code, answer["message"]) == (400, "field label not supported: spec.x")

    ask(scenario)


def test_a_table_has_kubectl_s_columns() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", PODS, pod("p", nodeName="n1"))
        table = await api.ok("GET", PODS, accept=TABLE)
        assert [column["name"] for column in table["columnDefinitions"]][:5] == [
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
        ]
        assert table["rows"][0]["cells"] == ["p", "0/1", "Pending", "0", "0s", "<none>", "n1", "<none>", "<none>"]

    ask(scenario)


def test_a_table_of_more_pages_than_kubectl_turns_at_once_is_answered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_list, "TABLE_PAGE", 2)
    monkeypatch.setattr(get_list, "TABLE_PAGES", 2)

    async def scenario(api: Api) -> None:
        for number in range(5):
            await api.ok("POST", PODS, pod(f"p{number}"))
        table = await api.ok("GET", f"{PODS}?limit=2", accept=TABLE)
        assert len(table["rows"]) == 5 and "continue" not in table["metadata"]
        page = await api.ok("GET", f"{PODS}?limit=3", accept=TABLE)
        assert len(page["rows"]) == 3
        small, full = (each["rows"][0]["object"]["metadata"] for each in (table, page))
        assert small == {name: item for name, item in full.items() if name != "managedFields"} != full
        assert len((await api.ok("GET", f"{PODS}?limit=2"))["items"]) == 2

    ask(scenario)


def test_unknown_groups_are_the_mux_s_business_and_unknown_resources_the_api_s() -> None:
    async def scenario(api: Api) -> None:
        response = await api.raw("GET", "/apis/unknown.example/v1/things")
        assert (response.status, response.body) == (404, b"404 page not found\n")
        code, answer = await api("GET", "/apis/apps/v1/frobs")
        assert (code, answer["message"]) == (404, "the server could not find the requested resource")
        assert (await api("POST", f"{PODS}/x", {}))[0] == 405

    ask(scenario)


def test_label_selectors_are_refused_in_the_parser_s_words() -> None:
    async def scenario(api: Api) -> None:
        for text, message in (
            ("a%3Db%3Dc", "found '=', expected: ',' or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ):
            code, answer = await api("GET", f"{CONFIGMAPS}?labelSelector={text}")
            assert (code, answer["message"]) == (400, message)

    ask(scenario)
