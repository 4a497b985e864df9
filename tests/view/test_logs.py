"""Events and decisions as they arrive: bounded, in order, and decoded once."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.kube.reflector import CacheChange
from dovetail.model.nodes import Event
from dovetail.view.decisions import DecisionLog
from dovetail.view.events import MAX_EVENTS_PER_OBJECT, Events


def an_event(name: str, uid: str, message: str = "", second: int = 0, kind: str = "Pod") -> Event:
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "shop", "uid": uid},
            "involvedObject": {"kind": kind, "namespace": "shop" if kind == "Pod" else "", "name": name},
            "reason": "FailedScheduling",
            "message": message,
            "lastTimestamp": f"2026-01-01T00:00:{second:02}Z",
        },
        Event,
    )


def test_ten_thousand_events_of_a_pod_leave_those_of_another() -> None:
    events = Events()
    events.take(CacheChange("added", "k", None, an_event("quiet", "q", "once")))
    for number in range(10_000):
        events.take(CacheChange("added", "k", None, an_event("loud", str(number), f"no {number}", number % 60)))
    assert len(events.about("Pod", "shop", "loud")) == MAX_EVENTS_PER_OBJECT
    assert [event.message for event in events.about("Pod", "shop", "quiet")] == ["once"]
    assert events.last_message("shop", "loud", "FailedScheduling") == "no 9999"
    assert events.last_message("shop", "nowhere", "FailedScheduling") == ""


def test_an_event_that_is_repeated_is_kept_once() -> None:
    events = Events()
    first, second = an_event("p", "e", "waits", 1), an_event("p", "e", "waits still", 2)
    events.take(CacheChange("added", "k", None, first))
    events.take(CacheChange("modified", "k", first, second))
    assert [event.message for event in events.about("Pod", "shop", "p")] == ["waits still"]


def test_events_of_cluster_scoped_objects_are_found_without_a_namespace() -> None:
    events = Events()
    events.take(CacheChange("added", "k", None, an_event("n1", "e", "gone", kind="Node")))
    assert len(events.about("Node", "", "n1")) == 1


def _map(*ids: str) -> dict[str, Any]:
    decisions = [Decision(id=name, kind="keep", time=f"2026-01-01T00:00:0{name[-1]}Z", summary="") for name in ids]
    return {"data": {"decisions": "".join(msgspec.json.encode(each).decode() + "\n" for each in decisions)}}


def test_decisions_of_several_maps_are_in_order_and_follow_what_is_appended() -> None:
    log = DecisionLog()
    log.take(CacheChange("added", "b", None, _map("d-2")))
    log.take(CacheChange("added", "a", None, _map("d-1")))
    log.take(CacheChange("modified", "b", _map("d-2"), _map("d-2", "d-3")))
    assert [decision.id for decision in log.all()] == ["d-1", "d-2", "d-3"]
    log.take(CacheChange("modified", "b", None, _map("d-4")))
    assert [decision.id for decision in log.all()] == ["d-1", "d-4"]
    log.take(CacheChange("deleted", "a", _map("d-1"), None))
    assert [decision.id for decision in log.all()] == ["d-4"]
