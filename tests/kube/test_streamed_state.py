"""The present state by a watch: object by object from the server's cache, and by a list where it cannot be had so."""

from __future__ import annotations

from typing import Any

from dovetail.kube.errors import Disconnected
from tests.kube.scripted import event, listing, pod, status, stream
from tests.kube.test_reflector import GONE, follow


def end(version: int) -> Any:
    annotations = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


def test_the_state_and_what_follows_come_by_one_watch() -> None:
    script, reflector, reported = follow(
        stream(
            event("ADDED", pod("a", 1)),
            event("ADDED", pod("b", 2)),
            end(10),
            event("MODIFIED", pod("a", 12)),
            Disconnected("x"),
        ),
        stream(event("DELETED", pod("b", 13)), forever=True),
        streams=True,
    )
    assert reported == ["added a@1", "added b@2", "modified a@12", "deleted b@13"]
    first, second = script.requests
    assert (first.parameter("sendInitialEvents"), first.parameter("resourceVersion")) == ("true", None)
    assert (second.parameter("sendInitialEvents"), second.parameter("resourceVersion")) == (None, "12")
    assert reflector.synced.is_set() and reflector.failure is None


def test_a_state_that_broke_off_is_no_state() -> None:
    """Its last object's version is no point to go on from: what had not been sent would be missed for good."""
    script, reflector, reported = follow(
        stream(event("ADDED", pod("a", 5)), Disconnected("x")),
        stream(event("ADDED", pod("a", 5)), event("ADDED", pod("b", 2)), end(10), forever=True),
        streams=True,
    )
    assert reported == ["added a@5", "added b@2"]
    assert script.requests[1].parameter("sendInitialEvents") == "true"
    assert reflector.version == "10"


def test_what_vanished_unseen_is_removed_when_the_state_is_complete() -> None:
    _, _, reported = follow(
        stream(event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), end(10), GONE),
        stream(event("ADDED", pod("b", 2)), end(30), forever=True),
        streams=True,
    )
    assert reported == ["added a@1", "added b@2", "deleted a@1"]


def test_a_server_that_cannot_send_its_state_is_asked_for_a_list_and_not_again_for_a_stream() -> None:
    script, reflector, reported = follow(
        status(422, "Invalid", "sendInitialEvents is forbidden for watch"),
        listing(10, pod("a", 1)),
        stream(GONE),
        listing(20, pod("a", 1)),
        stream(forever=True),
        streams=True,
    )
    assert reported == ["added a@1"]
    assert [request.parameter("sendInitialEvents") for request in script.requests] == ["true", None, None, None, None]
    assert reflector.synced.is_set()


def test_a_watch_that_ends_without_the_mark_of_a_whole_state_is_followed_by_a_list() -> None:
    _, reflector, reported = follow(
        stream(event("ADDED", pod("a", 1))), listing(10, pod("a", 1), pod("b", 2)), stream(forever=True), streams=True
    )
    assert reported == ["added a@1", "added b@2"]
    assert reflector.version == "10"
