"""What a page that subscribes late gets: all that changed since it was drawn."""

from __future__ import annotations

from datetime import UTC, datetime

from dovetail.view.difference import difference
from dovetail.view.model import FleetView, Totals
from dovetail.web.palette import Palette
from dovetail.web.rights import EVERYTHING, ViewerRights
from dovetail.web.stream import MAX_REMEMBERED, RELOAD, Stream
from dovetail.web.view_options import ViewOptions

LOOK = ViewOptions(language="en")


def stream_of(publications: int) -> Stream:
    """The fleet has as many pods as there were publications."""
    view = FleetView(totals=Totals(pods=0))
    stream = Stream(Palette(), lambda: datetime(2026, 3, 1, tzinfo=UTC), view)
    for number in range(1, publications + 1):
        new = FleetView(totals=Totals(pods=number))
        stream.publish(new, difference(view, new))
        view = new
    return stream


def received(stream: Stream, seen: int) -> list[bytes]:
    subscription, leave = stream.subscribe(EVERYTHING, LOOK, "", seen)
    leave()
    return [subscription.queue.get_nowait() for _ in range(subscription.queue.qsize())]


def test_a_page_gets_what_was_published_between_its_drawing_and_its_subscription() -> None:
    stream = stream_of(3)
    (update,) = received(stream, seen=1)
    assert b'data-figure=\\"pods\\"' in update and b">3<" in update
    assert received(stream, seen=3) == []
    assert received(stream, seen=stream.number + 1) == [RELOAD]  # the number of another process


def test_a_page_that_is_too_old_is_fetched_again() -> None:
    stream = stream_of(MAX_REMEMBERED + 5)
    assert received(stream, seen=2) == [RELOAD]
    assert len(received(stream, seen=10)) == 1


def test_what_a_page_missed_is_restricted_to_what_its_viewer_may_see() -> None:
    stream = stream_of(3)
    subscription, _ = stream.subscribe(ViewerRights(nodes=True), LOOK, "", 1)
    sent = [subscription.queue.get_nowait() for _ in range(subscription.queue.qsize())]
    assert not any(b">3<" in message for message in sent)
