"""Admission webhooks: order, reinvocation, selectors, failures; a bad webhook costs its timeout and loses nothing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.lab.apiserver.requests import CONFIGMAPS, MERGE, Api, ask, configmap

Json = dict[str, Any]
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RULE = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


def webhook(name: str, service: str, **fields: Any) -> Json:
    return {
        "name": f"{name}.example.com",
        "clientConfig": {"service": {"namespace": "default", "name": service, "path": f"/{name}"}},
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def allowed(request: Json, *patch: Json, **response: Any) -> Json:
    answer: Json = {"uid": request["uid"], "allowed": True, **response}
    if patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(msgspec.json.encode(list(patch))).decode()
    return answer


class Hooks:
    """A service `hooks` whose paths are functions of the review's request; it remembers what it was asked."""

    def __init__(self, api: Api) -> None:
        self.asked: list[tuple[str, Json]] = []
        self.answers: dict[str, Callable[[Json], Json | Awaitable[Json]]] = {}
        self.api = api
        api.server.local_services["default", "hooks"] = self.serve

    async def serve(self, path: str, body: bytes) -> tuple[int, bytes]:
        request = msgspec.json.decode(body)["request"]
        self.asked.append((path.lstrip("/"), request))
        answer = self.answers[path.lstrip("/")](request)
        response = answer if isinstance(answer, dict) else await answer
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        return 200, msgspec.json.encode(review)

    async def register(self, url: str, configuration: str, *webhooks: Json) -> None:
        await self.api.ok("POST", url, {"metadata": {"name": configuration}, "webhooks": list(webhooks)})

    def add(self, path: str, key: str) -> None:
        """A webhook that appends its name to a key of the data."""

        def answer(request: Json) -> Json:
            data = request["object"].get("data") or {}
            value = f"{data.get(key, '')}{path}"
            return allowed(request, {"op": "add", "path": "/data", "value": {**data, key: value}})

        self.answers[path] = answer


def test_webhooks_run_in_the_order_of_their_configurations_names() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        for name in ("c", "a", "b"):
            hooks.add(name, "order")
            await hooks.register(MUTATING, name, webhook(name, "hooks"))
        made = await api.ok("POST", CONFIGMAPS, configmap("x", {}))
        assert made["data"] == {"order": "abc"}
        assert [path for path, _ in hooks.asked] == ["a", "b", "c"]
        assert (await api.ok("GET", f"{CONFIGMAPS}/x"))["data"] == {"order": "abc"}

    ask(scenario)


def test_a_webhook_sees_later_changes_once_more_if_it_asks_for_it() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.add("a", "order")
        hooks.add("b", "order")
        await hooks.register(
            MUTATING,
            "all",
            webhook("a", "hooks", reinvocationPolicy="IfNeeded"),
            webhook("b", "hooks", reinvocationPolicy="IfNeeded"),
        )
        made = await api.ok("POST", CONFIGMAPS, configmap("x", {}))
        assert made["data"] == {"order": "abab"}

    ask(scenario)


def test_the_review_says_who_asks_for_what() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["look"] = allowed
        await hooks.register(VALIDATING, "look", webhook("look", "hooks"))
        await api.ok("POST", CONFIGMAPS, configmap("x", {"a": "1"}))
        await api.ok("PATCH", f"{CONFIGMAPS}/x", {"data": {"a": "2"}}, content_type=MERGE)
        (_, created), (_, updated) = hooks.asked
        assert (created["operation"], created["name"], created["namespace"]) == ("CREATE", "x", "default")
        assert created["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
        assert created["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        assert created["oldObject"] is None and created["dryRun"] is False
        assert created["object"]["data"] == {"a": "1"} and created["object"]["kind"] == "ConfigMap"
        assert updated["operation"] == "UPDATE"
        assert (updated["oldObject"]["data"], updated["object"]["data"]) == ({"a": "1"}, {"a": "2"})
        assert created["uid"] != updated["uid"]

    ask(scenario)


def test_the_uid_that_a_webhook_saw_is_the_one_that_is_stored() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["look"] = allowed
        await hooks.register(VALIDATING, "look", webhook("look", "hooks"))
        body = configmap("x")
        body["metadata"] = {"generateName": "x-"}
        made = await api.ok("POST", CONFIGMAPS, body)
        seen = hooks.asked[0][1]["object"]["metadata"]
        assert (seen["uid"], seen["name"]) == (made["metadata"]["uid"], made["metadata"]["name"])

    ask(scenario)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"message": "no", "code": 422}, 422, 'admission webhook "deny.example.com" denied the request: no'),
        ({"reason": "Because"}, 400, 'admission webhook "deny.example.com" denied the request: Because'),
        ({"code": 200}, 400, 'admission webhook "deny.example.com" denied the request without explanation'),
    ],
)
def test_a_denial_is_in_the_webhooks_words(status: Json, code: int, message: str) -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["deny"] = lambda request: {"uid": request["uid"], "allowed": False, "status": status}
        await hooks.register(VALIDATING, "deny", webhook("deny", "hooks"))
        answered, document = await api("POST", CONFIGMAPS, configmap("x"))
        assert (answered, document["message"]) == (code, message)
        assert (await api("GET", f"{CONFIGMAPS}/x"))[0] == 404

    ask(scenario)


def test_of_several_refusals_the_first_is_given() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        for name in ("one", "two"):
            hooks.answers[name] = lambda request, name=name: {  # type: ignore[misc]
                "uid": request["uid"],
                "allowed": False,
                "status": {"message": name},
            }
        await hooks.register(VALIDATING, "all", webhook("one", "hooks"), webhook("two", "hooks"))
        _, document = await api("POST", CONFIGMAPS, configmap("x"))
        assert document["message"].endswith("denied the request: one")
        assert len(hooks.asked) == 2

    ask(scenario)


async def hang(request: Json) -> Json:
    await asyncio.sleep(3600)
    return allowed(request)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (hang, "context deadline exceeded"),
        (lambda request: {"uid": "other", "allowed": True}, 'expected response.uid="'),
        (
            lambda request: allowed(request, patch="W10=", patchType=None),
            "webhook returned response.patch but not response.patchType",
        ),
        (lambda request: {}["gone"], "KeyError"),  # type: ignore[index]
    ],
)
def test_a_webhook_that_fails_costs_its_timeout_and_no_more(
    answer: Callable[[Json], Json | Awaitable[Json]], problem: str
) -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["bad"] = answer
        clock = api.server.clock
        await hooks.register(MUTATING, "bad", webhook("bad", "hooks", failurePolicy="Ignore", timeoutSeconds=3))
        began = clock.monotonic()
        await api.ok("POST", CONFIGMAPS, configmap("ignored", {"a": "1"}))
        assert clock.monotonic() - began <= 3.0
        strict = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]
        await api.ok("PATCH", f"{MUTATING}/bad", strict, content_type="application/json-patch+json")
        code, document = await api("POST", CONFIGMAPS, configmap("refused"))
        assert code == 500
        assert document["message"].startswith('Internal error occurred: failed calling webhook "bad.example.com": ')
        assert problem in document["message"]

    ask(scenario)


def test_a_missing_service_is_named() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        await hooks.register(MUTATING, "gone", webhook("gone", "nowhere"))
        _, document = await api("POST", CONFIGMAPS, configmap("x"))
        assert 'service "nowhere" not found' in document["message"]

    ask(scenario)


def test_a_patch_that_does_not_apply_fails_even_where_failures_are_ignored() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["bad"] = lambda request: allowed(request, {"op": "remove", "path": "/data/none"})
        await hooks.register(MUTATING, "bad", webhook("bad", "hooks", failurePolicy="Ignore"))
        code, _ = await api("POST", CONFIGMAPS, configmap("x", {"a": "1"}))
        assert code == 500
        assert (await api("GET", f"{CONFIGMAPS}/x"))[0] == 404

    ask(scenario)


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({"objectSelector": {"matchLabels": {"team": "a"}}}, 1),
        ({"objectSelector": {"matchLabels": {"team": "b"}}}, 0),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, 1),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
                    ]
                }
            },
            0,
        ),
        ({"rules": [{**RULE, "operations": ["UPDATE"]}]}, 0),
        ({"rules": [{**RULE, "resources": ["*"]}]}, 1),
        ({"rules": [{**RULE, "resources": ["*/*"]}]}, 1),
        ({"rules": [{**RULE, "resources": ["configmaps/status"]}]}, 0),
        ({"rules": [{**RULE, "scope": "Cluster"}]}, 0),
        ({"rules": [{**RULE, "apiGroups": ["apps"]}]}, 0),
        ({"matchConditions": [{"name": "a", "expression": "object.metadata.name == 'x'"}]}, 1),
        ({"matchConditions": [{"name": "a", "expression": "object.metadata.name == 'y'"}]}, 0),
        ({"matchConditions": [{"name": "a", "expression": "request.operation == 'CREATE'"}]}, 1),
        ({"failurePolicy": "Ignore", "matchConditions": [{"name": "a", "expression": "object.none == 1"}]}, 0),
    ],
)
def test_only_requests_that_match_reach_a_webhook(fields: Json, calls: int) -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["look"] = allowed
        await hooks.register(VALIDATING, "look", webhook("look", "hooks", **fields))
        body = configmap("x")
        body["metadata"]["labels"] = {"team": "a"}
        await api.ok("POST", CONFIGMAPS, body)
        assert len(hooks.asked) == calls

    ask(scenario)


def test_a_condition_that_cannot_tell_fails_the_request() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        conditions = [{"name": "a", "expression": "object.none == 1"}]
        await hooks.register(VALIDATING, "look", webhook("look", "hooks", matchConditions=conditions))
        code, document = await api("POST", CONFIGMAPS, configmap("x"))
        text = "expression 'object.none == 1' resulted in error: no such key: none"
        assert (code, document["message"]) == (403, f'configmaps "x" is forbidden: {text}')
        assert hooks.asked == []

    ask(scenario)


def test_a_dry_run_calls_only_webhooks_without_side_effects() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["look"] = allowed
        await hooks.register(VALIDATING, "look", webhook("look", "hooks", sideEffects="NoneOnDryRun"))
        await api.ok("POST", f"{CONFIGMAPS}?dryRun=All", configmap("x"))
        assert hooks.asked[0][1]["dryRun"] is True
        group, plural = "admissionregistration.k8s.io", "validatingwebhookconfigurations"
        stored = api.server.cluster.get(group, plural, None, "look")
        assert stored is not None
        older = {**stored, "webhooks": [{**stored["webhooks"][0], "sideEffects": "Some"}]}
        api.server.cluster.update(group, plural, older)  # as an older release let it be stored
        code, document = await api("POST", f"{CONFIGMAPS}?dryRun=All", configmap("x"))
        assert (code, document["message"]) == (400, 'admission webhook "look.example.com" does not support dry run')

    ask(scenario)


def test_warnings_and_audit_annotations_are_passed_on() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["look"] = lambda request: allowed(request, warnings=["old"], auditAnnotations={"k": "v"})
        await hooks.register(VALIDATING, "look", webhook("look", "hooks"))
        response = await api.raw("POST", CONFIGMAPS, configmap("x"))
        assert '"old"' in response.headers["warning"]
        assert api.server.audit[-1] == ("POST", CONFIGMAPS, {"look.example.com/k": "v"})

    ask(scenario)


def test_deletions_show_the_old_object() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        hooks.answers["keep"] = lambda request: {"uid": request["uid"], "allowed": False}
        await api.ok("POST", CONFIGMAPS, configmap("x"))
        await hooks.register(VALIDATING, "keep", webhook("keep", "hooks", rules=[{**RULE, "operations": ["DELETE"]}]))
        code, _ = await api("DELETE", f"{CONFIGMAPS}/x")
        assert code == 400
        (_, request) = hooks.asked[0]
        assert (request["object"], request["oldObject"]["metadata"]["name"]) == (None, "x")
        assert (await api("GET", f"{CONFIGMAPS}/x"))[0] == 200

    ask(scenario)


def test_no_webhook_is_asked_about_webhooks() -> None:
    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
        await hooks.register(VALIDATING, "all", webhook("all", "nowhere", rules=[rule]))
        assert (await api("POST", CONFIGMAPS, configmap("x")))[0] == 500
        await api.ok("DELETE", f"{VALIDATING}/all")
        await api.ok("POST", CONFIGMAPS, configmap("x"))

    ask(scenario)


def test_a_change_while_a_webhook_thinks_is_not_lost() -> None:
    """The write that waited runs on the newest state, so a stale one is refused."""

    async def scenario(api: Api) -> None:
        hooks = Hooks(api)
        await api.ok("POST", CONFIGMAPS, configmap("x", {"a": "1"}))

        async def slow(request: Json) -> Json:
            await asyncio.sleep(1)
            return allowed(request)

        hooks.answers["slow"] = slow
        selector = {"objectSelector": {"matchLabels": {"slow": "yes"}}}
        await hooks.register(VALIDATING, "slow", webhook("slow", "hooks", **selector))
        held = await api.ok("GET", f"{CONFIGMAPS}/x")
        held["metadata"]["labels"] = {"slow": "yes"}
        waiting = asyncio.create_task(api("PUT", f"{CONFIGMAPS}/x", held))
        await asyncio.sleep(0.5)
        await api.ok("PATCH", f"{CONFIGMAPS}/x", {"data": {"b": "2"}}, content_type=MERGE)
        code, document = await waiting
        assert (code, document["reason"]) == (409, "Conflict")
        assert (await api.ok("GET", f"{CONFIGMAPS}/x"))["data"] == {"a": "1", "b": "2"}

    ask(scenario)
