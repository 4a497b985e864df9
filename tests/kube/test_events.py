"""Events: the same words raise a count, too many words are cut off, and no caller waits."""

from __future__ import annotations

import asyncio

import msgspec

from dovetail.clock import run_virtual
from dovetail.kube.events import EventRecorder, InvolvedObject, reference
from dovetail.kube.resources import NODES
from tests.kube.scripted import Script, ok, status

NODE = InvolvedObject("Node", "n1", "", "uid-1")


def test_the_same_words_again_raise_the_count() -> None:
    async def main() -> None:
        script = Script(ok({}), ok({}), ok({}))
        recorder = EventRecorder(script.kube(), "dovetail")
        task = asyncio.create_task(recorder.run())
        for _ in range(3):
            recorder.record(NODE, "Normal", "Launched", "a node")
        await recorder.flush()
        task.cancel()
        create, *patches = script.requests
        body = msgspec.json.decode(create.body)
        assert create.path == "/api/v1/namespaces/default/events"
        assert body["involvedObject"] == {"kind": "Node", "name": "n1", "uid": "uid-1", "apiVersion": "v1"}
        assert (body["count"], body["type"], body["reason"]) == (1, "Normal", "Launched")
        assert [msgspec.json.decode(one.body)["count"] for one in patches] == [2, 3]
        assert {one.method for one in patches} == {"PATCH"}

    run_virtual(main())


def test_long_words_are_cut_to_what_the_server_takes() -> None:
    async def main() -> None:
        script = Script(ok({}))
        recorder = EventRecorder(script.kube(), "dovetail")
        task = asyncio.create_task(recorder.run())
        recorder.record(NODE, "Normal", "Long", "x" * 3000)
        await recorder.flush()
        task.cancel()
        assert msgspec.json.decode(script.requests[0].body)["message"] == "x" * 1024

    run_virtual(main())


def test_an_event_that_expired_on_the_server_is_written_anew() -> None:
    async def main() -> None:
        script = Script(ok({}), status(404, "NotFound"), ok({}))
        recorder = EventRecorder(script.kube(), "dovetail")
        task = asyncio.create_task(recorder.run())
        recorder.record(NODE, "Normal", "R", "m")
        recorder.record(NODE, "Normal", "R", "m")
        await recorder.flush()
        task.cancel()
        assert [one.method for one in script.requests] == ["POST", "PATCH", "POST"]

    run_virtual(main())


def test_one_object_cannot_flood_and_recovers_with_time() -> None:
    async def main() -> None:
        recorder = EventRecorder(Script().kube(), "dovetail", burst=3, refill=60)
        said = [recorder.record(NODE, "Warning", "R", str(n)) for n in range(5)]
        assert said == [True, True, True, False, False]
        assert recorder.record(InvolvedObject("Node", "n2"), "Warning", "R", "m")
        await asyncio.sleep(61)
        assert recorder.record(NODE, "Warning", "R", "later")
        assert recorder.dropped == 2

    run_virtual(main())


def test_events_that_were_cut_off_count_on_the_next_that_is_written() -> None:
    async def main() -> None:
        script = Script(ok({}), ok({}), ok({}))
        by_reason = EventRecorder(
            script.kube(),
            "dovetail",
            burst=1,
            refill=300.0,
            limit_key=lambda about, reason, message: (reason, about.name),
        )
        task = asyncio.create_task(by_reason.run())
        allowed = [by_reason.record(NODE, "Normal", "R", message) for message in ("a", "a", "b", "a")]
        assert allowed == [True, False, False, False]
        assert by_reason.record(NODE, "Normal", "other", "a")
        await by_reason.flush()
        await asyncio.sleep(301)
        assert by_reason.record(NODE, "Normal", "R", "a")
        await by_reason.flush()
        task.cancel()
        assert [msgspec.json.decode(request.body)["count"] for request in script.requests] == [1, 1, 4]

    run_virtual(main())


def test_what_was_said_hours_ago_about_objects_is_forgotten() -> None:
    async def main() -> None:
        script = Script(*(ok({}) for _ in range(4)))
        recorder = EventRecorder(script.kube(), "dovetail", burst=3, refill=60.0)
        task = asyncio.create_task(recorder.run())
        for number in range(3):
            recorder.record(InvolvedObject("Node", f"gone-{number}"), "Normal", "R", "m")
        await recorder.flush()
        await asyncio.sleep(3700)
        recorder.record(NODE, "Normal", "R", "m")
        await recorder.flush()
        task.cancel()
        assert {key[:4] for key in recorder._recorded} == set(recorder._tokens) == {NODE.identity}

    run_virtual(main())


def test_a_refused_event_is_counted_and_the_next_still_written() -> None:
    async def main() -> None:
        script = Script(status(403, "Forbidden"), ok({}))
        recorder = EventRecorder(script.kube(), "dovetail")
        task = asyncio.create_task(recorder.run())
        recorder.record(NODE, "Normal", "A", "a")
        recorder.record(NODE, "Normal", "B", "b")
        await recorder.flush()
        task.cancel()
        assert recorder.dropped == 1
        assert len(script.requests) == 2

    run_virtual(main())


def test_a_reference_is_made_from_any_object() -> None:
    obj = {"metadata": {"name": "n1", "uid": "u"}}
    assert reference(NODES, obj) == InvolvedObject("Node", "n1", "", "u", "v1")


def test_the_tenth_message_for_one_reason_is_combined_with_the_earlier_ones() -> None:
    async def main() -> None:
        script = Script(*(ok({}) for _ in range(12)))
        recorder = EventRecorder(script.kube(), "dovetail")
        task = asyncio.create_task(recorder.run())
        for number in range(11):
            recorder.record(NODE, "Normal", "R", f"message {number}")
        await recorder.flush()
        task.cancel()
        bodies = [msgspec.json.decode(request.body) for request in script.requests]
        assert [body["message"] for body in bodies[8:]] == [
            "message 8",
            "(combined from similar events): message 9",
            "(combined from similar events): message 10",
        ]
        assert [request.method for request in script.requests[8:]] == ["POST", "POST", "PATCH"]

    run_virtual(main())


def test_an_event_whose_name_is_taken_gets_another() -> None:
    async def main() -> None:
        script = Script(status(409, "AlreadyExists"), ok({}))
        recorder = EventRecorder(script.kube(), "dovetail")
        task = asyncio.create_task(recorder.run())
        recorder.record(NODE, "Normal", "R", "m")
        await recorder.flush()
        task.cancel()
        first, second = (msgspec.json.decode(request.body)["metadata"]["name"] for request in script.requests)
        assert first != second
        assert recorder.dropped == 0

    run_virtual(main())
