"""HTML that is safe by construction: every text is escaped unless it is markup already."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

#: Embeddings, overrides and isolates of Unicode's bidirectional algorithm, and its marks.
_DIRECTIONS = dict.fromkeys(
    (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}"
)
_VOID = frozenset(("br", "hr", "input", "link", "meta", "img"))


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Node = Markup | str | int | None
Attribute = str | int | bool | None


def escaped(value: str) -> str:
    """The text for HTML. What turns the direction of writing by force is made visible: it would show another text."""
    return escape(value if value.isascii() else value.translate(_DIRECTIONS))


def text(value: Node) -> Markup:
    """A value as HTML; None is nothing."""
    if isinstance(value, Markup):
        return value
    return Markup("" if value is None else escaped(str(value)))


def join(*values: Node) -> Markup:
    return Markup("".join(map(text, values)))


def tag(name: str, /, *children: Node, **attributes: Attribute) -> Markup:
    """An element. `class_` is `class`; `data_figure` is `data-figure`; True is an attribute without a value."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def isolated(value: str) -> Markup:
    """A name or message from the cluster: its direction must not change that of the text around it."""
    return tag("bdi", value)


def path(*parts: str) -> str:
    """A path of ours; a name may contain anything."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def link(label: Node, *parts: str, class_: str | None = None) -> Markup:
    shown = label if isinstance(label, Markup) else isolated(str(label))
    return tag("a", shown, href=path(*parts), class_=class_)
