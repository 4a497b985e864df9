"""`--fail-on evictions>10,cost>+5%`: limits that a prediction must keep."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

import msgspec

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.offline.diff.prediction import PredictionSummary

_LIMIT = re.compile(r"\s*([a-z]+)\s*(>=|<=|>|<)\s*([+-]?)(\d+(?:\.\d+)?)(%?)\s*")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
#: What can be limited, with its unit.
MEASURES = ("evictions", "cost", "pending", "added", "replaced", "removed", "minutes")


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """`relative` compares with the cluster at rest without the change; `share` in percent of it."""

    text: str
    measure: str
    comparison: str
    amount: float
    relative: bool
    share: bool

    def exceeded(self, summary: PredictionSummary) -> bool:
        value = _value(self, summary)
        return value is not None and _COMPARE[self.comparison](round(value, 9), self.amount)


def read(text: str) -> tuple[Limit, ...]:
    """Limits by commas."""
    return tuple(_read(part, text) for part in text.split(",") if part.strip())


def _read(part: str, text: str) -> Limit:
    match = _LIMIT.fullmatch(part)
    if match is None or match[1] not in MEASURES:
        raise UserError(
            message(
                "--fail-on {value}: {part} is not a limit such as evictions>10 or cost>+5%; limits are of {measures}",
                value=repr(text),
                part=repr(part.strip()),
                measures=", ".join(MEASURES),
            )
        )
    if match[5] and match[1] != "cost":
        raise UserError(
            message(
                "--fail-on {value}: {measure} is a number, not a share; leave out %", value=repr(text), measure=match[1]
            )
        )
    relative = bool(match[3]) or bool(match[5])
    if relative and match[1] not in ("cost", "pending", "evictions"):
        raise UserError(
            message(
                "--fail-on {value}: {measure} has nothing to be compared with; leave out the sign",
                value=repr(text),
                measure=match[1],
            )
        )
    sign = -1.0 if match[3] == "-" else 1.0
    return Limit(
        text=part.strip(),
        measure=match[1],
        comparison=match[2],
        amount=sign * float(match[4]),
        relative=relative,
        share=bool(match[5]),
    )


def _value(limit: Limit, summary: PredictionSummary) -> float | None:
    if limit.measure == "cost" and limit.share:
        if summary.cost_change is None:
            return float("inf") if summary.dollars_per_hour > 0 else 0.0
        return 100.0 * summary.cost_change
    values = {
        "evictions": (summary.evictions, summary.evictions_without),
        "cost": (summary.dollars_per_hour, summary.dollars_per_hour_without),
        "pending": (summary.pending, summary.pending_without),
        "added": (summary.added, 0),
        "replaced": (summary.replaced, 0),
        "removed": (summary.removed, 0),
        "minutes": (summary.seconds / 60.0, 0),
    }
    after, before = values[limit.measure]
    return float(after - before) if limit.relative else float(after)
