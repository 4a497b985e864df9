"""Figures and cells of a terminal: as wide as they may be, whatever is in them. Unknown is `?`, never 0."""

from __future__ import annotations

import unicodedata
from datetime import datetime

import msgspec

from dovetail.language.columns import width_of
from dovetail.model.quantity import is_bytes
from dovetail.view.model import HOURS_PER_MONTH, Money

UNKNOWN = "?"
_BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


class Glyphs(msgspec.Struct, frozen=True):
    """What bars are drawn with: a terminal without Unicode has ASCII."""

    full: str
    free: str
    parts: str
    cut: str
    least: str
    dash: str


UNICODE = Glyphs("█", "·", "▏▎▍▌▋▊▉", "…", "≥", "─")
ASCII = Glyphs("#", ".", "", "~", ">=", "-")


def glyphs(encoding: str | None) -> Glyphs:
    try:
        "".join((UNICODE.full, UNICODE.free, UNICODE.parts, UNICODE.cut, UNICODE.least)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def printable(text: str) -> str:
    """The text on one line, without what moves a cursor or turns the direction of writing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_safe(char) for char in text)


def _safe(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Zl", "Zp") or char in "\t\n\r":
        return " "
    return "\N{REPLACEMENT CHARACTER}" if category in ("Cc", "Cf", "Cs", "Co", "Cn") else char


def fit(text: str, columns: int, cut: str = "…") -> str:
    """The text in at most so many columns; what is cut off leaves a mark."""
    if width_of(text) <= columns:
        return text
    if columns <= 0:
        return ""
    kept, used = [], 0
    for char in text:
        wide = width_of(char)
        if used + wide > columns - 1:
            break
        kept.append(char)
        used += wide
    return "".join(kept) + cut


def fit_middle(text: str, columns: int, cut: str = "…") -> str:
    """As `fit`, with the middle left out: names of pods differ at their ends."""
    if width_of(text) <= columns or columns < 8 or not text.isascii():
        return fit(text, columns, cut)
    tail = (columns - 1) // 2
    return f"{text[: columns - 1 - tail]}{cut}{text[-tail:]}"


def wrapped(text: str, columns: int) -> list[str]:
    """The text in lines of at most so many columns, broken at spaces where there are any, below its indentation."""
    body = text.lstrip(" ")
    indent = " " * min(len(text) - len(body), columns // 2)
    room, lines, line = columns - len(indent), [], ""
    for word in body.split(" "):
        longer = f"{line} {word}" if line else word
        if width_of(longer) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        while width_of(word) > room:
            head = fit(word, room, "") or word[0]
            lines.append(head)
            word = word[len(head) :]
        line = word
    return [f"{indent}{part}".rstrip() for part in (*lines, line)]


def bar(share: float | None, columns: int, drawn: Glyphs) -> str:
    """A bar of so many columns; more than all is drawn as all. Unknown is a question mark, not an empty bar."""
    if share is None:
        return UNKNOWN + " " * (columns - 1)
    steps = len(drawn.parts) + 1
    filled = round(min(max(share, 0.0), 1.0) * columns * steps)
    whole, part = divmod(filled, steps)
    text = drawn.full * whole + (drawn.parts[part - 1] if part else "")
    return text + drawn.free * (columns - len(text))


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


def dollars(amount: float | None) -> str:
    """Dollars an hour: four digits behind the point, as price lists have them; fewer of large sums."""
    if amount is None:
        return UNKNOWN
    return f"${amount:,.0f}" if abs(amount) >= 1000 else f"${amount:,.2f}" if abs(amount) >= 10 else f"${amount:.4f}"


def money(total: Money, drawn: Glyphs = UNICODE) -> str:
    """A sum an hour; where a price is unknown, the least that it is."""
    return _least(total, dollars(total.known), drawn)


def monthly(total: Money, drawn: Glyphs = UNICODE) -> str:
    amount = total.known * HOURS_PER_MONTH
    return _least(total, f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}", drawn)


def _least(total: Money, text: str, drawn: Glyphs) -> str:
    if not total.unpriced:
        return text
    return UNKNOWN if total.unpriced >= total.parts else f"{drawn.least}{text}"


def amount(resource: str, count: int | None) -> str:
    if count is None:
        return UNKNOWN
    if resource == "cpu":
        return f"{count / 1000:,.0f}" if count >= 100_000 else f"{count / 1000:.4g}"
    if not is_bytes(resource):
        return f"{count:,}"
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_BINARY_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g}{_BINARY_UNITS[unit]}" if size < 1000 else f"{size:.0f}{_BINARY_UNITS[unit]}"


def span(seconds: float) -> str:
    """A duration as kubectl has it, in at most four columns up to 99 days."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172800 else f"{whole // 86400}d"


def age(since: datetime | None, now: datetime) -> str:
    return UNKNOWN if since is None else span((now - since).total_seconds())
