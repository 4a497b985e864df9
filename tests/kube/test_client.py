"""The client: what it sends, what it makes of answers, what it sends again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail import __version__
from dovetail.clock import run_virtual
from dovetail.kube.errors import (
    AlreadyExists,
    ApiError,
    BadObject,
    Conflict,
    Disconnected,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dovetail.kube.resources import DEPLOYMENTS, NODES, PODS
from tests.kube.scripted import Script, event, listing, ok, pod, status, stream


class Meta(msgspec.Struct):
    name: str


class Named(msgspec.Struct):
    metadata: Meta


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Placed(msgspec.Struct):
    metadata: Meta
    spec: Spec = Spec()


def test_paths_follow_group_scope_and_subresource() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("a", "b", "log") == "/api/v1/namespaces/a/pods/b/log"
    assert NODES.path(None, "n") == "/api/v1/nodes/n"
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert DEPLOYMENTS.path("a") == "/apis/apps/v1/namespaces/a/deployments"
    with pytest.raises(ValueError, match="lives in a namespace"):
        PODS.path(None, "b")


def test_objects_are_decoded_into_the_type_asked_for() -> None:
    async def main() -> None:
        kube = Script(ok(pod("a", 1)), ok(pod("a", 1))).kube()
        assert (await kube.get(PODS, "a", "default"))["metadata"]["name"] == "a"
        assert await kube.get(PODS, "a", "default", type=Named) == Named(Meta("a"))

    run_virtual(main())


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (410, "Gone", Gone),
        (422, "Invalid", Invalid),
        (500, "", ServerError),
        (500, "InternalError", ServerError),
        (405, "MethodNotAllowed", ApiError),
    ],
)
def test_the_error_class_follows_the_reason(code: int, reason: str, kind: type[ApiError]) -> None:
    async def main() -> None:
        script = Script(status(code, reason, "words of the server", causes=[{"reason": "X"}]))
        with pytest.raises(kind) as caught:
            await script.kube().get(PODS, "a", "default")
        assert type(caught.value) is kind
        assert caught.value.message == "words of the server"
        assert caught.value.has_cause("X")
        assert "GET /api/v1/namespaces/default/pods/a" in str(caught.value)

    run_virtual(main())


def test_an_answer_in_plain_text_is_an_error_too() -> None:
    async def main() -> None:
        from dovetail.kube.transport import Response

        with pytest.raises(NotFound, match="404 page not found"):
            await Script(Response(status=404, body=b"404 page not found\n")).kube().get(PODS, "a", "default")

    run_virtual(main())


def test_a_list_follows_its_pages() -> None:
    async def main() -> None:
        script = Script(listing(7, pod("a", 1), token="next"), listing(7, pod("b", 2)))
        found = await script.kube().list(PODS, labels="app=x", limit=1, type=Named)
        assert [one.metadata.name for one in found.items] == ["a", "b"]
        assert found.resource_version == "7"
        assert script.requests[0].parameter("labelSelector") == "app=x"
        assert script.requests[1].parameter("continue") == "next"
        assert script.requests[1].parameter("labelSelector") == "app=x"

    run_virtual(main())


def test_a_list_whose_snapshot_expired_between_pages_is_taken_again_whole() -> None:
    async def main() -> None:
        script = Script(listing(7, pod("a", 1), token="next"), status(410, "Expired"), listing(9, pod("b", 2)))
        found = await script.kube().list(PODS, limit=1, type=Named)
        assert [one.metadata.name for one in found.items] == ["b"]
        assert script.requests[2].parameter("limit") is None

    run_virtual(main())


def test_one_bad_object_of_a_list_is_reported_and_the_rest_returned() -> None:
    async def main() -> None:
        odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"nodeName": 5}}

        found = await Script(listing(3, pod("a", 1), odd)).kube().list(PODS, type=Placed)
        assert [one.metadata.name for one in found.items] == ["a"]
        assert found.bad[0].key == "default/odd"
        assert "Expected `str`, got `int` - at `$.spec.nodeName`" in found.bad[0].problem

    run_virtual(main())


def test_an_empty_list_may_be_null() -> None:
    async def main() -> None:
        assert (await Script(ok({"metadata": {"resourceVersion": "1"}, "items": None})).kube().list(PODS)).items == []

    run_virtual(main())


def test_retry_after_is_honoured_for_every_verb() -> None:
    async def main() -> None:
        script = Script(status(429, "TooManyRequests", headers={"retry-after": "7"}), ok(pod("a", 1)))
        await script.kube().create(PODS, pod("a", 1))
        assert 7 <= script.times[1] <= 8

    run_virtual(main())


def test_reads_are_repeated_after_a_broken_connection_and_creates_are_not() -> None:
    async def main() -> None:
        script = Script(Disconnected("broke"), status(503, "ServiceUnavailable"), ok(pod("a", 1)))
        await script.kube().get(PODS, "a", "default")
        assert len(script.requests) == 3
        script = Script(Disconnected("broke"), ok(pod("a", 1)))
        with pytest.raises(Disconnected):
            await script.kube().create(PODS, pod("a", 1))
        script = Script(Disconnected("refused", sent=False), ok(pod("a", 1)))
        await script.kube().create(PODS, pod("a", 1))

    run_virtual(main())


def test_a_json_patch_is_not_repeated_after_a_broken_connection() -> None:
    async def main() -> None:
        script = Script(Disconnected("broke"))
        with pytest.raises(Disconnected):
            await script.kube().patch(PODS, "a", [{"op": "add", "path": "/x/-", "value": 1}], "default", kind="json")

    run_virtual(main())


def test_retries_end() -> None:
    async def main() -> None:
        script = Script(*[status(503, "ServiceUnavailable")] * 10)
        with pytest.raises(Unavailable):
            await script.kube().get(PODS, "a", "default")
        assert len(script.requests) == 5

    run_virtual(main())


def test_a_refused_eviction_is_an_answer() -> None:
    async def main() -> None:
        refusal = status(
            429, "TooManyRequests", "budget", causes=[{"reason": "DisruptionBudget"}], retryAfterSeconds=10
        )
        script = Script(refusal)
        with pytest.raises(TooManyRequests) as caught:
            await script.kube().evict("a", "default", uid="u")
        assert caught.value.has_cause("DisruptionBudget")
        assert caught.value.retry_after == 10
        assert len(script.requests) == 1
        body = msgspec.json.decode(script.requests[0].body)
        assert body["deleteOptions"]["preconditions"] == {"uid": "u"}

    run_virtual(main())


def test_requests_name_the_program_and_its_version() -> None:
    async def main() -> None:
        script = Script(ok({}))
        await script.kube().get(NODES, "n1")
        assert script.requests[0].headers["user-agent"] == f"dovetail/{__version__}"

    run_virtual(main())


def test_writes_say_who_writes_and_carry_their_preconditions() -> None:
    async def main() -> None:
        script = Script(ok({}), ok({}), ok({}), ok({}), ok({}))
        kube = script.kube(manager="house")
        await kube.create(PODS, {"metadata": {"name": "a", "namespace": "n"}})
        await kube.apply(NODES, {"metadata": {"name": "n1"}}, manager="kubelet")
        await kube.patch(PODS, "a", {"x": 1}, "n", subresource="status")
        await kube.delete(PODS, "a", "n", uid="u", resource_version="5", grace=0, propagation="Foreground")
        await kube.bind("a", "n", "node-1", uid="u")
        create, apply, patch, delete, bind = script.requests
        assert create.path == "/api/v1/namespaces/n/pods"
        assert create.parameter("fieldManager") == "house"
        assert msgspec.json.decode(create.body)["kind"] == "Pod"
        assert apply.headers["content-type"] == "application/apply-patch+yaml"
        assert (apply.parameter("fieldManager"), apply.parameter("force")) == ("kubelet", "true")
        assert patch.path.endswith("/status")
        assert msgspec.json.decode(delete.body) == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "5"},
        }
        assert msgspec.json.decode(bind.body)["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}

    run_virtual(main())


def test_a_fence_stops_writes_and_not_reads() -> None:
    async def main() -> None:
        class Lost(Exception):
            pass

        def fence() -> None:
            raise Lost

        script = Script(ok(pod("a", 1)))
        kube = script.kube().fenced(fence)
        await kube.get(PODS, "a", "default")
        with pytest.raises(Lost):
            await kube.delete(PODS, "a", "default")
        assert len(script.requests) == 1

    run_virtual(main())


def test_watch_frames_may_be_cut_anywhere() -> None:
    async def main() -> list[str]:
        text = b"".join(msgspec.json.encode(event("ADDED", pod(f"p{n}", n))) + b"\n" for n in range(5))
        chunks = [text[at : at + 37] for at in range(0, len(text), 37)]
        kube = Script(stream(*chunks)).kube()
        return [e.object.metadata.name async for e in kube.watch(PODS, type=Named)]

    assert run_virtual(main()) == ["p0", "p1", "p2", "p3", "p4"]


def test_a_watch_that_ends_in_the_middle_of_an_event_is_broken() -> None:
    async def main() -> None:
        with pytest.raises(Disconnected, match="middle of an event"):
            async for _ in Script(stream(b'{"type": "ADDED", ')).kube().watch(PODS):
                pass

    run_virtual(main())


def test_an_error_event_is_raised_as_what_it_says() -> None:
    async def main() -> None:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}
        with pytest.raises(Gone, match="too old"):
            async for _ in Script(stream(event("ERROR", gone))).kube().watch(PODS, resource_version="1"):
                pass

    run_virtual(main())


def test_a_watch_names_the_object_it_cannot_decode() -> None:
    async def main() -> None:
        class Odd(msgspec.Struct):
            status: int

        with pytest.raises(BadObject, match="default/a"):
            async for _ in Script(stream(event("ADDED", pod("a", 1, status="x")))).kube().watch(PODS, type=Odd):
                pass

    run_virtual(main())


def test_a_silent_watch_counts_as_dead() -> None:
    async def main() -> float:
        kube = Script(stream(forever=True)).kube()
        with pytest.raises(Disconnected, match="nothing heard for 60 s"):
            async for _ in kube.watch_raw(PODS, quiet=60):
                pass
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(60)


def test_leaving_a_watch_closes_its_stream() -> None:
    async def main() -> None:
        closed: list[Any] = []

        async def chunks() -> Any:
            try:
                while True:
                    yield msgspec.json.encode(event("ADDED", pod("a", 1))) + b"\n"
            finally:
                closed.append(True)

        from contextlib import aclosing

        from dovetail.kube.transport import Response

        kube = Script(Response(status=200, stream=chunks())).kube()
        async with aclosing(kube.watch(PODS)) as events:  # type: ignore[type-var]
            async for _ in events:
                break
        assert closed == [True]

    run_virtual(main())
