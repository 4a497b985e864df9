"""The instant of a recording on every page: the slider, and links that keep it."""

from __future__ import annotations

import re
from datetime import datetime
from html import escape
from urllib.parse import quote, urlencode

from dovetail.offline.recorded_fleet import instant_text
from dovetail.web.context import Moment, PageContext
from dovetail.web.markup import Markup, join, tag

_LINK = re.compile(r'( (?:href|hx-get|data-chart)=")(/(?!assets/)[^"]*)"')
_FORM = re.compile(r'<form\b(?![^>]*id="slider")[^>]*>')
_NAMED = re.compile(r"[?&;]at=")


def with_instant_in_links(html: str, moment: Moment | None) -> str:
    """The page with the instant in each link and form of it, so that whatever is opened is of the same instant.

    A page that follows a growing recording names none: what is opened from it follows as well.

    Texts and values of attributes are escaped: what matches is an attribute of ours.
    """
    if moment is None or moment.following:
        return html
    text = instant_text(moment.instant)
    field = f"at={quote(text, safe='')}"

    def with_instant(match: re.Match[str]) -> str:
        before, address = match.groups()
        if _NAMED.search(address):
            return match.group()
        joint = "?" if "?" not in address else "" if address.endswith("?") else "&amp;"
        return f'{before}{address}{joint}{field}"'

    hidden = f'<input type="hidden" name="at" value="{escape(text)}">'
    return _FORM.sub(lambda match: match.group() + hidden, _LINK.sub(with_instant, html))


def shown(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def slider(context: PageContext) -> Markup:
    """Where in the recording the page is, and the way to elsewhere; without a script the button leads there."""
    t, moment = context.t, context.moment
    assert moment is not None
    others = {name: value for name, value in context.query.items() if name not in ("at", "step")}
    control = tag(
        "input",
        id="step",
        name="step",
        type="range",
        min=0,
        max=moment.steps,
        step=1,
        value=moment.step,
        autocomplete="off",
        aria_valuetext=shown(moment.instant),
        data_start=moment.start.isoformat(),
        data_end=moment.end.isoformat(),
    )
    form = tag(
        "form",
        *(tag("input", type="hidden", name=name, value=value) for name, value in others.items()),
        tag("label", t("Time in the recording"), for_="step"),
        tag("small", shown(moment.start)),
        control,
        tag("small", shown(moment.end)),
        tag("button", t("Show"), type="submit", class_="quiet"),
        id="slider",
        action=context.path,
    )
    return tag(
        "section",
        tag("strong", t("Simulation, running") if moment.growing else t("Recording"), data_growing=moment.growing),
        tag("output", shown(moment.instant), id="instant", for_="step"),
        form,
        _step(context, t("Previous change of the fleet"), moment.before, others),
        _step(context, t("Next change of the fleet"), moment.after, others),
        _follow(context, moment, others),
        _gap(context, moment),
        id="recording",
        class_="recording",
        aria_label=t("Recording"),
    )


def _step(context: PageContext, label: str, instant: datetime | None, others: dict[str, str]) -> Markup:
    """A link to the nearest launch or removal of a node; plain text where there is none."""
    if instant is None:
        return tag("span", label, class_="empty", aria_disabled="true", role="link")
    query = urlencode({**others, "at": instant_text(instant)})
    return tag("a", label, href=f"{context.path}?{query}", title=shown(instant))


def _follow(context: PageContext, moment: Moment, others: dict[str, str]) -> Markup | None:
    """The way back to the end of a recording that grows; `at=` in the address keeps `carried` from naming this one."""
    if not moment.growing:
        return None
    if moment.following:
        return tag("span", context.t("Following the simulation"), class_="empty")
    return tag("a", context.t("Follow the simulation"), href=f"{context.path}?{urlencode({**others, 'at': ''})}")


def _gap(context: PageContext, moment: Moment) -> Markup | None:
    if moment.gap is None:
        return None
    since, until = map(shown, moment.gap)
    said = context.t(
        "The recorder did not run from {since} to {until}: this is the last it saw.", since=since, until=until
    )
    return join(tag("p", said, class_="notice warn", data_notice="gap"))
