"""The mirror of a kind: whatever the network does, the store ends equal to the server and listeners saw why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from dovetail.clock import run_virtual
from dovetail.kube.errors import BadObject, Disconnected
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import PODS
from dovetail.kube.store import Store
from dovetail.kube.transport import Request, Response
from tests.kube.scripted import Answer, Script, event, listing, ok, pod, status, stream

GONE = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class Placed(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: Spec = Spec()


def follow(*answers: Answer, seconds: float = 100.0, **options: Any) -> tuple[Script, Reflector[Any], list[str]]:
    """Run a reflector against a script for a while; what it reported is `kind name@version`."""

    async def main() -> tuple[Script, Reflector[Any], list[str]]:
        script = Script(*answers)
        reported: list[str] = []

        def hear(change: CacheChange[Any]) -> None:
            obj = change.object["metadata"] if isinstance(change.object, dict) else None
            reported.append(f"{change.kind} {obj['name']}@{obj['resourceVersion']}" if obj else change.key)

        reflector = Reflector(script.kube(), PODS, options.pop("type", dict), on_event=hear, **options)
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return script, reflector, reported

    return run_virtual(main())


def test_it_lists_then_watches_from_there() -> None:
    script, reflector, reported = follow(
        listing(10, pod("a", 1)),
        stream(
            event("ADDED", pod("b", 11)), event("MODIFIED", pod("a", 12)), event("DELETED", pod("b", 13)), forever=True
        ),
    )
    assert reported == ["added a@1", "added b@11", "modified a@12", "deleted b@13"]
    assert script.requests[1].parameter("resourceVersion") == "10"
    assert script.requests[1].parameter("allowWatchBookmarks") == "true"
    assert reflector.synced.is_set()
    assert reflector.version == "13"
    assert [one["metadata"]["name"] for one in reflector.store] == ["a"]


def test_news_older_than_what_a_writer_of_ours_put_into_the_store_change_nothing() -> None:
    """But one made anew under the same name is another object, whatever its version."""

    async def main() -> list[str]:
        news = event("MODIFIED", pod("a", 12)), event("MODIFIED", pod("b", 13, uid="new"))
        late = stream(*news, forever=True, pause=5.0)
        script = Script(listing(10, pod("a", 1), pod("b", 2)), late)
        reflector: Reflector[Any] = Reflector(script.kube(), PODS)
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        reflector.store.put("default/a", pod("a", 20))
        reflector.store.put("default/b", pod("b", 20))
        await asyncio.sleep(20)
        task.cancel()
        return [one["metadata"]["resourceVersion"] for one in reflector.store]

    assert run_virtual(main()) == ["20", "13"]


def test_it_resumes_a_broken_watch_where_it_stopped() -> None:
    script, _, reported = follow(
        listing(10),
        stream(event("ADDED", pod("a", 11)), Disconnected("reset by peer")),
        stream(event("MODIFIED", pod("a", 12)), forever=True),
    )
    assert reported == ["added a@11", "modified a@12"]
    assert script.requests[2].parameter("resourceVersion") == "11"
    assert 0 < script.times[2] < 2


def test_a_watch_that_is_open_again_is_no_failure_however_little_it_says() -> None:
    """Otherwise a quiet kind would keep the whole view stale for minutes after the server was away."""
    _, reflector, reported = follow(listing(10), stream(Disconnected("x")), Disconnected("y"), stream(forever=True))
    assert reported == []
    assert reflector.failure is None


def test_a_bookmark_moves_the_point_of_resumption() -> None:
    mark = {"metadata": {"resourceVersion": "50"}}
    script, reflector, reported = follow(
        listing(10), stream(event("BOOKMARK", mark), Disconnected("x")), stream(forever=True)
    )
    assert reported == []
    assert script.requests[2].parameter("resourceVersion") == "50"
    assert reflector.version == "50"


def test_after_410_it_lists_again_and_tells_what_vanished_unseen() -> None:
    script, reflector, reported = follow(
        listing(10, pod("a", 1), pod("b", 2), pod("c", 3)),
        stream(GONE),
        listing(90, pod("a", 1), pod("c", 80)),
        stream(forever=True),
    )
    assert reported == ["added a@1", "added b@2", "added c@3", "deleted b@2", "modified c@80"]
    assert script.asked().count("GET /api/v1/pods") == 4
    assert sorted(reflector.store.keys()) == ["default/a", "default/c"]


def test_410_as_a_status_code_is_the_same() -> None:
    _, _, reported = follow(listing(10, pod("a", 1)), status(410, "Expired"), listing(20), stream(forever=True))
    assert reported == ["added a@1", "deleted a@1"]


def test_an_object_made_anew_under_its_old_name_is_a_deletion_and_an_addition() -> None:
    _, _, reported = follow(
        listing(10, pod("a", 1, uid="one")), stream(GONE), listing(20, pod("a", 15, uid="two")), stream(forever=True)
    )
    assert reported == ["added a@1", "deleted a@1", "added a@15"]


def test_a_bad_object_is_skipped_and_reported_and_the_watch_goes_on() -> None:
    bad: list[BadObject] = []
    _, reflector, _ = follow(
        listing(10, pod("odd", 1, spec={"nodeName": 1}), pod("a", 2)),
        stream(event("ADDED", pod("odd2", 11, spec={"nodeName": {}})), event("ADDED", pod("b", 12)), forever=True),
        type=Placed,
        on_bad=bad.append,
    )
    assert list(reflector.store.keys()) == ["default/a", "default/b"]
    assert [one.key for one in bad] == ["default/odd", "default/odd2"]
    assert reflector.version == "12"


def test_an_object_that_turns_unreadable_keeps_its_last_readable_state() -> None:
    _, reflector, _ = follow(
        listing(10, pod("a", 1, spec={"nodeName": "n"})),
        stream(GONE),
        listing(20, pod("a", 15, spec={"nodeName": 1})),
        stream(forever=True),
        type=Placed,
    )
    held = reflector.store.get("default/a")
    assert held is not None
    assert held.spec.node_name == "n"


def test_failures_are_spaced_out_with_growing_pauses() -> None:
    script, reflector, _ = follow(listing(10), *[Disconnected("down")] * 6, stream(forever=True), seconds=300)
    gaps = [b - a for a, b in zip(script.times[1:], script.times[2:], strict=False)]
    assert gaps[0] < 1
    assert gaps[-1] > 5
    assert gaps and all(gap < 46 for gap in gaps)
    assert reflector.failure is None or isinstance(reflector.failure, Disconnected)


def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    script, _, _ = follow(listing(10), *[stream() for _ in range(50)], seconds=60)
    assert len(script.requests) < 12


def test_a_server_that_says_later_is_asked_later() -> None:
    script, _, _ = follow(
        listing(1), status(429, "TooManyRequests", headers={"retry-after": "20"}), stream(forever=True)
    )
    assert script.times[2] >= 20


def test_a_dead_watch_is_noticed_and_resumed() -> None:
    script, _, reported = follow(
        listing(10), stream(forever=True), stream(event("ADDED", pod("a", 11)), forever=True), seconds=700
    )
    assert reported == ["added a@11"]
    asked = script.requests[1].parameter("timeoutSeconds")
    assert asked is not None
    assert script.times[2] >= int(asked)


def test_a_store_finds_objects_by_its_indices_as_they_change() -> None:
    store: Store[dict[str, Any]] = Store({"node": lambda one: [one["node"]] if one.get("node") else []})
    store.put("a", {"node": "n1"})
    store.put("b", {"node": "n1"})
    store.put("c", {})
    assert [one["node"] for one in store.by("node", "n1")] == ["n1", "n1"]
    store.put("a", {"node": "n2"})
    assert store.by("node", "n2") == [{"node": "n2"}]
    assert len(store.by("node", "n1")) == 1
    store.remove("b")
    assert store.by("node", "n1") == []
    assert len(store) == 2


def test_a_listed_page_is_trimmed_before_the_next_one_is_asked_for() -> None:
    """A hundred thousand pods, whole and at once, would take several times the memory of what is kept of them."""
    happened: list[str] = []

    def keep(new: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
        happened.append(f"kept {new['metadata']['name']}")
        return {"metadata": new["metadata"]}

    def page(name: str, token: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            happened.append(f"asked for {name}")
            metadata = {"resourceVersion": "10", "continue": token}
            return ok({"metadata": metadata, "items": [pod(name, 1, spec={"containers": ["large"]})]})

        return answer

    _, reflector, reported = follow(page("a", "more"), page("b", ""), stream(forever=True), keep=keep)
    assert happened == ["asked for a", "kept a", "asked for b", "kept b"]
    assert [list(kept) for kept in reflector.store] == [["metadata"], ["metadata"]]
    assert reported == ["added a@1", "added b@1"]
