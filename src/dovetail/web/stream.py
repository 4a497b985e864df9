"""Updates to all viewers: a difference is computed once, drawn once for each set of options, and sent to many.

A viewer that cannot keep up gets no queue without end: it is asked to fetch the page again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from dovetail.view.difference import Difference, difference
from dovetail.view.model import FleetView
from dovetail.view.totals import grouped
from dovetail.web.blocks import block, group_of
from dovetail.web.fleet_page import (
    group_heading,
    legend,
    now_panel,
    pending_panel,
    prepare,
    recent_panel,
    table_of,
)
from dovetail.web.layout import fleet_figures, health
from dovetail.web.page_language import page_language
from dovetail.web.palette import Palette
from dovetail.web.rights import Restriction, ViewerRights
from dovetail.web.view_options import ViewOptions

#: Updates that may wait for a slow viewer before it must fetch the page again.
MAX_QUEUED = 32
#: Publications, by a quarter of a second, within which a page may subscribe and still get what it missed.
MAX_REMEMBERED = 120
RELOAD = b"event: reload\ndata: {}\n\n"
GROWN = b"event: grown\ndata: {}\n\n"
CHANGED = b"event: changed\ndata: {}\n\n"
BEAT = b"event: beat\ndata: {}\n\n"

_encode = msgspec.json.Encoder().encode


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the script applies: elements by their id, blocks with the group they go into, ids that are gone."""

    html: str = ""
    gone: tuple[str, ...] = ()
    time: str = ""


class Subscription:
    """One open page. `about` is the object it shows: empty is the fleet."""

    def __init__(self, options: ViewOptions, about: str) -> None:
        self.options = options
        self.about = about
        self.queue: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED)

    def push(self, message: bytes) -> None:
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(RELOAD)


class Audience:
    """Viewers with the same rights, and the view that they have."""

    def __init__(self, rights: ViewerRights, whole: FleetView) -> None:
        self.restriction = Restriction(rights)
        self.view = self.restriction.view(whole)
        self.subscriptions: set[Subscription] = set()


class Stream:
    """All audiences. `publish` is the listener of an observer."""

    def __init__(self, palette: Palette, now: Callable[[], datetime], whole: FleetView) -> None:
        self._palette = palette
        self._now = now
        self._whole = whole
        self._audiences: dict[ViewerRights, Audience] = {}
        self._remembered = {0: whole}
        self.number = 0
        self.sent_bytes = 0

    @property
    def viewers(self) -> int:
        return sum(len(audience.subscriptions) for audience in self._audiences.values())

    def subscribe(
        self, rights: ViewerRights, options: ViewOptions, about: str, seen: int | None = None
    ) -> tuple[Subscription, Callable[[], None]]:
        """`seen` is the number of the publication that the page was drawn from: what came since is sent at once."""
        audience = self._audiences.get(rights)
        if audience is None:
            audience = self._audiences[rights] = Audience(rights, self._whole)
        subscription = Subscription(options, about)
        audience.subscriptions.add(subscription)
        if seen is not None and seen != self.number:
            drawn = self._remembered.get(seen)
            if drawn is None:
                subscription.push(RELOAD)
            else:
                missed = difference(audience.restriction.view(drawn), audience.view)
                self._send(audience.view, missed, (subscription,))

        def leave() -> None:
            audience.subscriptions.discard(subscription)
            if not audience.subscriptions and self._audiences.get(rights) is audience:
                del self._audiences[rights]

        return subscription, leave

    def view(self, rights: ViewerRights) -> FleetView:
        """The view for these rights, without drawing it twice for those who look on."""
        audience = self._audiences.get(rights)
        return audience.view if audience is not None else Restriction(rights).view(self._whole)

    def publish(self, whole: FleetView, change: Difference) -> None:
        self._whole = whole
        self.number += 1
        self._remembered[self.number] = whole
        self._remembered.pop(self.number - MAX_REMEMBERED, None)
        for audience in self._audiences.values():
            old, audience.view = audience.view, audience.restriction.view(whole)
            missed = change if audience.view is whole else difference(old, audience.view)
            self._send(audience.view, missed, audience.subscriptions)

    def announce(self, about: str, permitted: Callable[[ViewerRights], bool] = lambda rights: True) -> None:
        """What a page shows has changed without the view: viewers who may see it draw it again."""
        for rights, audience in self._audiences.items():
            if not permitted(rights):
                continue
            for subscription in audience.subscriptions:
                if subscription.about == about:
                    subscription.push(CHANGED)

    def _send(self, view: FleetView, change: Difference, subscriptions: Iterable[Subscription]) -> None:
        if not change:
            return
        drawn: dict[tuple[ViewOptions, bool], bytes] = {}
        for subscription in subscriptions:
            fleet = not subscription.about
            options = subscription.options if fleet else ViewOptions(language=subscription.options.language)
            message = drawn.get((options, fleet))
            if message is None:
                update = self._update(view, change, options, fleet)
                message = drawn[options, fleet] = b"event: update\ndata: " + _encode(update) + b"\n\n"
            subscription.push(message)
            if subscription.about and concerns(change, subscription.about):
                subscription.push(CHANGED)
            self.sent_bytes += len(message)

    def _update(self, view: FleetView, change: Difference, options: ViewOptions, fleet: bool) -> Update:
        t = page_language(options.language)
        now = self._now()
        parts: list[str] = []
        if change.totals is not None:
            parts.append(fleet_figures(view, t))
        if change.health is not None or change.pools is not None:
            parts.append(health(view, t))
        gone: tuple[str, ...] = ()
        if fleet:
            if change.nodes or change.nodes_gone:
                prepare(self._palette, view, options)
                drawn, gone = self._nodes(view, change, options)
                parts += [*drawn, *((legend(view, options, self._palette, t),) if options.form == "picture" else ())]
            if change.nodes or change.nodes_gone or change.pending or change.pending_gone or change.pools is not None:
                parts.append(now_panel(view, now, t))
            if change.pending or change.pending_gone:
                parts.append(pending_panel(view, t))
            if change.recent is not None or change.health is not None:
                parts.append(recent_panel(view, t))
        return Update(html="".join(parts), gone=gone, time=now.isoformat())

    def _nodes(
        self, view: FleetView, change: Difference, options: ViewOptions
    ) -> tuple[Iterable[str], tuple[str, ...]]:
        t = page_language(options.language)
        if options.form == "table":
            return [table_of(view, options, t)], ()
        shown = [node for node in change.nodes.values() if options.shows(node)]
        hidden = [node.key for node in change.nodes.values() if not options.shows(node)]
        drawn: list[str] = [block(node, options, self._palette, t) for node in shown]
        groups = grouped({key: node for key, node in view.nodes.items() if options.shows(node)}, options.group)
        touched = {group_of(node, options) for node in shown}
        if change.nodes_gone or hidden:
            touched = set(groups)
        drawn += [group_heading(name, groups[name], options, t) for name in sorted(touched & groups.keys())]
        return drawn, (*change.nodes_gone, *hidden)


def concerns(change: Difference, about: str) -> bool:
    """Whether a page about an object must be drawn again; pages about the whole cluster always must."""
    kind, _, name = about.partition("/")
    if kind in ("node", "nodeclaim"):
        return about in change.nodes or about in change.nodes_gone
    if kind == "pod":
        on_node = any(pod.key == name for node in change.nodes.values() for pod in node.pods)
        return on_node or name in change.pending or name in change.pending_gone
    return True
