"""Server-side apply: ownership, conflicts, removal, and what comes from client-side apply."""

from __future__ import annotations

from typing import Any

from tests.lab.apiserver.requests import APPLY, CONFIGMAPS, DEPLOYMENTS, MERGE, Api, ask, configmap, deployment


async def _apply(api: Api, manager: str, name: str, data: dict[str, str], force: bool = False) -> tuple[int, Any]:
    url = f"{CONFIGMAPS}/{name}?fieldManager={manager}" + ("&force=true" if force else "")
    return await api("PATCH", url, configmap(name, data), content_type=APPLY)


def test_applying_twice_is_applying_once() -> None:
    async def scenario(api: Api) -> None:
        code, first = await _apply(api, "one", "a", {"x": "1"})
        assert code == 201
        assert await _apply(api, "one", "a", {"x": "1"}) == (200, first)

    ask(scenario)


def test_a_conflict_names_the_owner_and_the_field() -> None:
    async def scenario(api: Api) -> None:
        await _apply(api, "one", "a", {"x": "1"})
        code, answer = await _apply(api, "two", "a", {"x": "2"})
        assert code == 409
        assert answer["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
        code, forced = await _apply(api, "two", "a", {"x": "2"}, force=True)
        assert code == 200 and [e["manager"] for e in forced["metadata"]["managedFields"]] == ["two"]

    ask(scenario)


def test_what_an_applier_drops_goes_unless_another_owns_it() -> None:
    async def scenario(api: Api) -> None:
        await _apply(api, "one", "a", {"mine": "1", "ours": "1"})
        await _apply(api, "two", "a", {"ours": "1"})
        _, after = await _apply(api, "one", "a", {})
        assert after["data"] == {"ours": "1"}

    ask(scenario)


def test_joining_ownership_writes_an_entry_without_time() -> None:
    async def scenario(api: Api) -> None:
        await _apply(api, "one", "a", {"x": "1"})
        _, joined = await _apply(api, "two", "a", {"x": "1"})
        entry = next(e for e in joined["metadata"]["managedFields"] if e["manager"] == "two")
        assert "time" not in entry

    ask(scenario)


def test_list_items_are_owned_by_key() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", f"{DEPLOYMENTS}?fieldManager=upd", deployment("d"))
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}},
        }
        code, answer = await api("PATCH", f"{DEPLOYMENTS}/d?fieldManager=app", body, content_type=APPLY)
        assert code == 409
        assert answer["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="c"].image'
        assert answer["details"]["causes"][0]["message"] == 'conflict with "upd" using apps/v1'

    ask(scenario)


def test_an_unknown_field_is_an_error_whatever_validation_says() -> None:
    async def scenario(api: Api) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dat": {}}
        url = f"{CONFIGMAPS}/a?fieldManager=m&fieldValidation=Ignore"
        code, answer = await api("PATCH", url, body, content_type=APPLY)
        assert code == 500
        assert answer["message"] == (
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dat: field not declared in schema"
        )

    ask(scenario)


def test_kubectl_takes_over_what_it_applied_on_the_client() -> None:
    async def scenario(api: Api) -> None:
        last = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}}'
        annotation = {"kubectl.kubernetes.io/last-applied-configuration": last}
        body = configmap("a", {"x": "1"}, annotations=annotation)
        await api.ok("POST", f"{CONFIGMAPS}?fieldManager=kubectl-client-side-apply", body)
        code, after = await _apply(api, "kubectl", "a", {"x": "2"})
        assert code == 200 and after["data"] == {"x": "2"}
        rewritten = after["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        assert rewritten == '{"apiVersion":"v1","data":{"x":"2"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'

    ask(scenario)


def test_cleared_ownership_stays_off_until_the_next_apply() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", CONFIGMAPS, configmap("a", {"x": "1"}))
        cleared = await api.ok("PUT", f"{CONFIGMAPS}/a", configmap("a", {"x": "1"}, managedFields=[{}]))
        assert "managedFields" not in cleared["metadata"]
        still = await api.ok("PATCH", f"{CONFIGMAPS}/a", {"data": {"y": "1"}}, content_type=MERGE)
        assert "managedFields" not in still["metadata"]
        _, applied = await _apply(api, "one", "a", {"x": "1"})
        managers = [entry["manager"] for entry in applied["metadata"]["managedFields"]]
        assert managers == ["one", "before-first-apply"]

    ask(scenario)
