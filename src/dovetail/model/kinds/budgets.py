"""Budgets: how many nodes of a pool may be disrupted now, and for which reason.

A budget limits voluntary disruption only. Several budgets combine by the smallest allowance, so adding one
can never allow more. A budget that cannot be read stops disruption: fail closed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from dovetail.model import cron, duration
from dovetail.model.kinds.nodepool import Budget

UNLIMITED = 2**31 - 1
_NODES = re.compile(r"([0-9]+)(%?)", re.ASCII)


class BudgetError(ValueError):
    """The budget cannot be read."""


class Allowance(msgspec.Struct, frozen=True):
    """How many nodes may go at once, and the budget that says so; `problem` where one could not be read."""

    nodes: int
    decided_by: Budget | None = None
    problem: str | None = None

    @property
    def unlimited(self) -> bool:
        return self.nodes >= UNLIMITED


def allowance(budgets: Sequence[Budget], reason: str, total: int, now: datetime) -> Allowance:
    """The nodes that may go at once for a reason, and the budget that says so."""
    tightest = Allowance(UNLIMITED)
    for budget in budgets:
        try:
            allowed = of(budget, total) if is_active(budget, now) else UNLIMITED
        except ValueError as error:
            return Allowance(0, budget, str(error))
        if covers(budget, reason) and allowed < tightest.nodes:
            tightest = Allowance(allowed, budget)
    return tightest


def covers(budget: Budget, reason: str) -> bool:
    """A budget without reasons is for every reason."""
    return budget.reasons is None or reason in budget.reasons


def is_active(budget: Budget, now: datetime) -> bool:
    """Whether the budget applies now. Without a schedule it always does; a schedule is in UTC unless it says TZ=."""
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        raise BudgetError("schedule and duration go together")
    return cron.parse(budget.schedule).active(now, duration.parse(budget.duration))


def of(budget: Budget, total: int) -> int:
    """The budget's number of a pool of that size; a percentage is rounded up."""
    read = _NODES.fullmatch(budget.nodes)
    if read is None:
        raise BudgetError(f"invalid value for IntOrString: invalid type: string is not a percentage: {budget.nodes!r}")
    number = int(read[1])
    return -(-number * total // 100) if read[2] else number


def ever_opens(budgets: Sequence[Budget], reason: str, total: int, now: datetime, days: int = 366) -> bool:
    """Whether some minute of the coming time allows at least one disruption."""
    return opens(budgets, reason, total, now, days) is not None


def opens(budgets: Sequence[Budget], reason: str, total: int, now: datetime, days: int = 366) -> datetime | None:
    """The first moment from now on that allows at least one disruption, if there is one.

    Only the ends of windows can open what is shut, so only they are looked at.
    """
    allowed = allowance(budgets, reason, total, now)
    if allowed.nodes > 0:
        return now
    if allowed.problem is not None:
        return None
    shut = [budget for budget in budgets if covers(budget, reason) and of(budget, total) == 0]
    if any(budget.schedule is None for budget in shut):
        return None
    ends = sorted(end for budget in shut for end in _ends(budget, now, days))
    return next((end for end in ends if allowance(budgets, reason, total, end).nodes > 0), None)


def _ends(budget: Budget, now: datetime, days: int) -> list[datetime]:
    """The ends of a budget's windows, up to a few hundred of them."""
    assert budget.schedule is not None and budget.duration is not None
    schedule, length = cron.parse(budget.schedule), duration.parse(budget.duration)
    ends, start = [], now - length
    for _ in range(min(days, 400)):
        fire = schedule.next(start)
        if fire is None:
            break
        ends.append(fire + length)
        start = fire
    return ends
