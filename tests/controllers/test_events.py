"""Events: published once in a while, and what was published long ago is forgotten."""

from __future__ import annotations

import asyncio

from dovetail.clock import run_virtual
from dovetail.controllers.events import DEDUPE_S, EventPublisher
from dovetail.kube.events import EventRecorder
from dovetail.model.meta import ObjectMeta
from dovetail.model.nodes import Node
from tests.kube.scripted import Script


def test_an_event_is_published_again_after_a_while_and_forgotten_by_then() -> None:
    async def main() -> None:
        kube = Script().kube()
        event_publisher = EventPublisher(EventRecorder(kube, "dovetail"), kube.clock)

        def publish(name: str) -> bool:
            return event_publisher.publish(Node(metadata=ObjectMeta(name=name)), "Normal", "Disrupted", "it goes")

        assert [publish("first"), publish("first"), publish("second")] == [True, False, True]
        await asyncio.sleep(DEDUPE_S + 1.0)
        assert publish("third")
        assert [identity[2] for identity, _, _ in event_publisher._published] == ["third"]
        assert publish("first")

    run_virtual(main())
