"""A pool that is well-formed and still will not do what was wanted: limits, budgets, expiry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dovetail.language import message
from dovetail.model import cron, duration, quantity
from dovetail.model.kinds import NodePool
from dovetail.model.kinds.admission import Path
from dovetail.model.kinds.budgets import ever_opens
from dovetail.model.kinds.validation import overlay_problems, pool_problems
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.findings import LintFinding
from dovetail.model.lint.subject import LintSubject
from dovetail.model.lint.suggestions import suggestion
from dovetail.model.requirements import Requirements

VOLUNTARY = ("Underutilized", "Empty", "Drifted")


def pools(subject: LintSubject, shop: InstanceCatalog | None, now: datetime) -> Iterator[LintFinding]:
    """What is wrong with a pool as a whole."""
    pool = subject.pool()
    if pool is None:
        return
    yield from _limits(subject, pool, shop)
    yield from _budgets(subject, pool, now)
    yield from _expiry(subject, pool)


def refusals(subject: LintSubject, said: set[str]) -> Iterator[LintFinding]:
    """What only the controller would refuse; `said` are places that have a finding already."""
    pool, overlay = subject.pool(), subject.overlay()
    problems = pool_problems(pool) if pool is not None else overlay_problems(overlay) if overlay is not None else []
    where: Path = subject.terms_at[:-1] if subject.kind == "NodePool" else ("spec",)
    for text in problems:
        if said:
            return  # the shape is wrong already; these would be echoes
        yield subject.finding("DV107", where, text, hint=suggestion(text), key=True)


def _limits(subject: LintSubject, pool: NodePool, shop: InstanceCatalog | None) -> Iterator[LintFinding]:
    path: Path = ("spec", "limits", "resources") if subject.kind == "Provisioner" else ("spec", "limits")
    try:
        limits = quantity.resources(pool.spec.limits)
    except ValueError:
        return
    for name in ("cpu", "memory", "nodes"):
        if limits.get(name) == 0:
            text, hint = (
                message("{name} 0: the pool may launch nothing", name=name),
                message("delete the line where there is no limit"),
            )
            yield subject.finding("DV202", (*path, name), text, hint=hint, key=True)
            return
    if shop is None:
        return
    types = shop.meeting(Requirements.of_entries(pool.spec.template.spec.requirements))
    for name in ("cpu", "memory"):
        smallest = min(types, key=lambda instance_type: instance_type.capacity.get(name, 0), default=None)
        if smallest is None or name not in limits:
            continue
        needs = smallest.capacity.get(name, 0)
        if limits[name] < needs:
            shown = quantity.format_resources({name: needs})[name]
            text = message(
                "{name} {limits} is less than one node: the smallest, {smallest}, has {shown}",
                name=name,
                limits=pool.spec.limits[name],
                smallest=smallest.name,
                shown=shown,
            )
            yield subject.finding(
                "DV202", (*path, name), text, hint=message("allow at least {shown}", shown=shown), key=True
            )


def _budgets(subject: LintSubject, pool: NodePool, now: datetime) -> Iterator[LintFinding]:
    if not isinstance(subject.get("spec", "disruption", "budgets"), list):
        return
    budgets = pool.spec.disruption.budgets
    for index, budget in enumerate(budgets):
        path: Path = ("spec", "disruption", "budgets", index)
        try:
            if budget.schedule is not None:
                cron.parse(budget.schedule)
            if budget.duration is not None:
                duration.parse(budget.duration)
        except ValueError as error:
            field = "schedule" if budget.schedule is not None else "duration"
            text = message("cannot be read: {error}; disruption of the pool stops", error=error)
            yield subject.finding(
                "DV107", (*path, field), text, hint=message("five fields such as 0 9 * * 1-5, or @daily")
            )
            return
    try:
        shut = [reason for reason in VOLUNTARY if not ever_opens(budgets, reason, 100, now)]
    except ValueError:
        return
    if shut:
        reasons = ", ".join(shut)
        hint = message("give the zero a schedule and a duration, or leave a time in which no such budget applies")
        yield subject.finding(
            "DV203",
            ("spec", "disruption", "budgets"),
            message("no disruption is ever allowed for {reasons}", reasons=reasons),
            hint=hint,
            key=True,
        )


def _expiry(subject: LintSubject, pool: NodePool) -> Iterator[LintFinding]:
    places: dict[str, Path] = {
        "Provisioner": ("spec", "ttlSecondsUntilExpired"),
        "NodePool": ("spec", "template", "spec", "expireAfter"),
    }
    path = places[subject.kind]
    if subject.version.endswith("v1beta1"):
        path = ("spec", "disruption", "expireAfter")
    expiry = pool.spec.template.spec.expire_after
    if subject.get(*path) in (None, "Never") or expiry == "Never":
        return
    try:
        lifetime = duration.parse(expiry)
    except duration.DurationError:
        return  # the checks of the schema say so
    if (
        subject.get("spec", "disruption", "budgets") is None
        and pool.spec.template.spec.termination_grace_period is None
    ):
        after = duration.format_duration(lifetime).removesuffix("0m0s")
        text = message(
            "nodes expire after {after} and nothing paces it: those launched together go together", after=after
        )
        hint = message(
            "add spec.disruption.budgets for the other reasons, and terminationGracePeriod to bound the drain"
        )
        if subject.kind == "Provisioner":
            hint = message("a NodePool can pace it: dovetail convert --to v1, then add spec.disruption.budgets")
        yield subject.finding("DV204", path, text, hint=hint, key=True)
