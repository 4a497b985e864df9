"""What the URL says about the view of the fleet. Viewers with the same options get the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from dovetail.view.model import NodeView

GROUPS = ("pool", "group", "zone", "type", "capacity")
COLOURS = ("namespace", "workload")
FORMS = ("picture", "table")
#: Pixels of the side of a block of one unit (a vCPU, or 4 GiB), by zoom.
ZOOMS: Mapping[str, int] = {"xs": 9, "s": 14, "m": 22, "l": 34, "xl": 56, "xxl": 84}
#: The area in pixels that all blocks together should take, if no zoom is asked for: a screen or so.
_COMFORTABLE_AREA = 320_000
GIB = 1 << 30


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    language: str = "en"
    group: str = "pool"
    colour: str = "namespace"
    zoom: str = ""
    form: str = "picture"
    filter: str = ""

    def query(self, **changes: str) -> str:
        """The options as the query of a URL; what is as by default is left out, but for the language."""
        fields = {name: getattr(self, name) for name in ("group", "colour", "zoom", "form", "filter")} | changes
        named = {name: value for name, value in fields.items() if value and value != getattr(DEFAULT, name)}
        return f"?{urlencode(named)}" if named else "?"

    def shows(self, node: NodeView) -> bool:
        if not self.filter:
            return True
        named = (node.name, node.claim, node.pool, node.group, node.zone, node.instance_type, node.capacity_type)
        texts = (*filter(None, named), node.state.value, *{pod.namespace for pod in node.pods})
        return all(any(word in text for text in texts) for word in self.filter.split())


DEFAULT = ViewOptions()


def view_options_of(query: Mapping[str, str], language: str, zoom: str = "m") -> ViewOptions:
    """The options that a query names; what it does not know is ignored, as any link may be old."""

    def one_of(name: str, choices: tuple[str, ...], default: str) -> str:
        text = query.get(name, "")
        return text if text in choices else default

    return ViewOptions(
        language=language,
        group=one_of("group", GROUPS, "pool"),
        colour=one_of("colour", COLOURS, "namespace"),
        zoom=one_of("zoom", tuple(ZOOMS), zoom),
        form=one_of("form", FORMS, "picture"),
        filter=query.get("filter", "")[:200],
    )


def units(node: NodeView) -> tuple[float, float]:
    """The size of a node: its vCPUs, and its memory in units of 4 GiB. What is not launched has the size asked for."""
    amounts = node.capacity or node.requests or {}
    return amounts.get("cpu", 0) / 1000, amounts.get("memory", 0) / (4 * GIB)


def comfortable_zoom(nodes: Mapping[str, NodeView]) -> str:
    """The largest zoom at which the fleet takes about a screen."""
    total = sum(sum(units(node)) for node in nodes.values())
    fitting = [zoom for zoom, side in ZOOMS.items() if total * side * side <= _COMFORTABLE_AREA]
    return fitting[-1] if fitting else next(iter(ZOOMS))
