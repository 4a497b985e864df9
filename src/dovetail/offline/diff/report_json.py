"""The report for programs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.offline.diff.limits import Limit
from dovetail.offline.diff.prediction import Prediction, summary
from dovetail.offline.diff.report_text import HOURS_A_MONTH


def as_json(prediction: Prediction, exceeded: Sequence[Limit] = ()) -> str:
    """`docs/diff.md` has the fields; more may be added, these keep their names."""
    body = {
        "changed": prediction.changed,
        "summary": {
            **msgspec.to_builtins(summary(prediction)),
            "dollarsPerMonth": round(prediction.applied.end.per_hour * HOURS_A_MONTH, 2),
            "dollarsPerMonthWithout": round(prediction.without.end.per_hour * HOURS_A_MONTH, 2),
            "lowerBound": prediction.applied.end.lower_bound,
        },
        "exceeded": [limit.text for limit in exceeded],
        "now": prediction.now,
        "without": prediction.without,
        "with": prediction.applied,
        "market": prediction.market,
        "notes": prediction.notes,
        "horizonSeconds": prediction.horizon_s,
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=1).decode()
