"""Writing: concurrency, no-ops, dry runs, names."""

from __future__ import annotations

from tests.lab.apiserver.requests import CONFIGMAPS, DEPLOYMENTS, MERGE, Api, ask, configmap, deployment


def test_a_write_that_changes_nothing_keeps_the_version() -> None:
    async def scenario(api: Api) -> None:
        made = await api.ok("POST", CONFIGMAPS, configmap("a", {"x": "1"}))
        again = await api.ok("PUT", f"{CONFIGMAPS}/a", configmap("a", {"x": "1"}))
        merged = await api.ok("PATCH", f"{CONFIGMAPS}/a", {"data": {"x": "1"}}, content_type=MERGE)
        assert made == again == merged

    ask(scenario)


def test_a_stale_version_conflicts_even_where_nothing_would_change() -> None:
    async def scenario(api: Api) -> None:
        made = await api.ok("POST", CONFIGMAPS, configmap("a", {"x": "1"}))
        await api.ok("PUT", f"{CONFIGMAPS}/a", configmap("a", {"x": "2"}))
        stale = configmap("a", {"x": "2"}, resourceVersion=made["metadata"]["resourceVersion"])
        code, answer = await api("PUT", f"{CONFIGMAPS}/a", stale)
        assert (code, answer["reason"]) == (409, "Conflict")

    ask(scenario)


def test_a_dry_run_shows_the_new_content_and_changes_nothing() -> None:
    async def scenario(api: Api) -> None:
        made = await api.ok("POST", CONFIGMAPS, configmap("a", {"x": "1"}))
        dry = await api.ok("PUT", f"{CONFIGMAPS}/a?dryRun=All", configmap("a", {"x": "2"}))
        assert dry["data"] == {"x": "2"}
        assert dry["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        assert await api.ok("GET", f"{CONFIGMAPS}/a") == made
        created = await api.ok("POST", f"{CONFIGMAPS}?dryRun=All", configmap("b"))
        assert "resourceVersion" not in created["metadata"] and created["metadata"]["uid"]
        assert (await api("GET", f"{CONFIGMAPS}/b"))[0] == 404

    ask(scenario)


def test_a_generated_name_is_the_prefix_and_five_characters() -> None:
    async def scenario(api: Api) -> None:
        body = {"metadata": {"generateName": "x" * 70}}
        made = await api.ok("POST", CONFIGMAPS, body)
        assert len(made["metadata"]["name"]) == 63
        assert set(made["metadata"]["name"][58:]) <= set("bcdfghjklmnpqrstvwxz2456789")

    ask(scenario)


def test_misspelt_fields_are_warned_about_or_refused() -> None:
    async def scenario(api: Api) -> None:
        body = deployment("d", replica=3)
        strict = await api("POST", f"{DEPLOYMENTS}?fieldValidation=Strict", body)
        assert strict[0] == 400
        assert strict[1]["message"].endswith('strict decoding error: unknown field "spec.replica"')
        response = await api.raw("POST", DEPLOYMENTS, body)
        assert response.headers["warning"] == '299 - "unknown field \\"spec.replica\\""'

    ask(scenario)


def test_a_wrong_type_is_named_as_go_names_it() -> None:
    async def scenario(api: Api) -> None:
        code, answer = await api("POST", DEPLOYMENTS, deployment("d", replicas="two"))
        assert code == 400
        assert answer["message"] == (
            'Deployment in version "v1" cannot be handled as a Deployment: '
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        )

    ask(scenario)


def test_scale_moves_the_replicas_and_their_owner() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", DEPLOYMENTS, deployment("d"))
        scaled = await api.ok("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 5}}, content_type=MERGE)
        assert scaled["kind"] == "Scale" and scaled["spec"] == {"replicas": 5}
        stored = await api.ok("GET", f"{DEPLOYMENTS}/d")
        owner = [e for e in stored["metadata"]["managedFields"] if "f:replicas" in e["fieldsV1"].get("f:spec", {})]
        assert [(e["manager"], e.get("subresource"), "time" in e) for e in owner] == [("test", "scale", False)]

    ask(scenario)


def test_creators_of_objects_alike_own_the_same_and_of_others_what_they_sent() -> None:
    async def scenario(api: Api) -> None:
        async def owned(body: dict[str, object]) -> dict[str, object]:
            made = await api.ok("POST", CONFIGMAPS, body)
            (entry,) = made["metadata"]["managedFields"]
            fields: dict[str, object] = entry["fieldsV1"]
            return fields

        one = await owned(configmap("a", {"x": "1"}))
        assert one == await owned(configmap("b", {"x": "1"})) == {"f:data": {".": {}, "f:x": {}}}
        labelled = await owned(configmap("c", {"x": "1"}, labels={"l": "1"}))
        assert labelled == {**one, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}
        assert (await owned({"metadata": {"generateName": "d-"}})) == {"f:metadata": {"f:generateName": {}}}
        assert (await owned(configmap("e", {"y": "1"}))) == {"f:data": {".": {}, "f:y": {}}}

    ask(scenario)
