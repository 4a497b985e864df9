"""A prediction: the same cluster run to rest twice, without the change and with it."""

from __future__ import annotations

from dovetail.offline.diff.changes import ProposedChange
from dovetail.offline.diff.prediction import Prediction
from dovetail.studies.what_if.run import WhatIfInput, run


def predict(setup: WhatIfInput, change: ProposedChange) -> Prediction:
    """Takes the processor for some seconds; the same input gives the same prediction."""
    applied = run(setup, change)
    without = run(setup, None)
    return Prediction(
        without=without,
        applied=applied,
        notes=(*setup.cluster.notes, *change.notes),
        market=change.market,
        horizon_s=setup.horizon_s,
    )
