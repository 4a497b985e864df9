"""Decisions: a table of several, and the page of one with what it created, removed and refused."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.controllers.history.decisions import Decision
from dovetail.view.decisions import summary_of
from dovetail.web import figures
from dovetail.web.context import PageContext
from dovetail.web.funnel import funnels
from dovetail.web.layout import card, decision_badge, decision_link, definition_list, table
from dovetail.web.markup import Markup, isolated, join, link, tag
from dovetail.web.page_language import PageLanguage

#: Decisions of a table, the newest.
MAX_DECISIONS = 50


def decision_table(decisions: Sequence[Decision], t: PageLanguage) -> Markup:
    columns = [(t("Time"), ""), (t("Decision"), ""), (t("Kind"), ""), (t("Reason"), ""), (t("What"), "long")]
    rows: list[list[Markup | str]] = [
        [
            tag("time", decision.time.replace("T", " ").removesuffix("Z"), datetime=decision.time),
            decision_link(decision.id),
            decision_badge(decision.kind, t),
            isolated(decision.reason),
            isolated(t.recorded(summary_of(decision))),
        ]
        for decision in reversed(decisions[-MAX_DECISIONS:])
    ]
    return table(t("Decisions"), columns, rows, t("No decision is recorded."), hidden=True)


def decision_page(context: PageContext, decisions: Sequence[Decision], identity: str) -> Markup | None:
    """A decision, whole: a decision that is rolled back has the same id."""
    t = context.t
    matching = [decision for decision in decisions if decision.id == identity]
    if not matching or not (context.rights.history and context.rights.pods):
        return None
    return join(tag("h1", t("Decision {id}", id=identity)), *(_decision(decision, t) for decision in matching))


def _decision(decision: Decision, t: PageLanguage) -> Markup:
    facts: list[tuple[str, Markup | str]] = [
        (t("Time"), decision.time),
        (t("Kind"), decision_badge(decision.kind, t)),
        (t("Reason"), isolated(decision.reason or "-")),
        (t("Before"), figures.dollars(decision.before, t)),
        (t("After"), figures.dollars(decision.cost, t)),
        (t("Lower bound"), figures.dollars(decision.bound, t)),
        (t("Evictions"), str(decision.evictions)),
    ]
    removed = [link(name, "node", name) for name in decision.removed]
    pods = [link(key, "pod", *key.split("/", 1)) for key in decision.pods if "/" in key]
    refusals = [
        tag(
            "div",
            tag(
                "p",
                tag("span", f"{refusal.count:,}", class_="count"),
                isolated(t.recorded(refusal.message)),
                " ",
                tag("code", refusal.code),
            ),
            funnels(refusal.pools, t),
        )
        for refusal in decision.refusals
    ]
    return card(
        isolated(t.recorded(summary_of(decision)) or decision.kind),
        definition_list(facts),
        _claims(decision, t) if decision.node_claims else None,
        tag("p", t("Removed"), ": ", _listed(removed)) if removed else None,
        tag("p", t("Pods"), ": ", _listed(pods)) if pods else None,
        *refusals,
    )


def _claims(decision: Decision, t: PageLanguage) -> Markup:
    """The NodeClaims that it created."""
    rows: list[list[Markup | str]] = [
        [
            link(made.claim, "nodeclaim", made.claim),
            link(made.pool, "nodepool", made.pool),
            made.instance_type,
            made.zone,
            made.capacity_type,
            figures.dollars(made.price, t),
            str(made.pods),
        ]
        for made in decision.node_claims
    ]
    columns = [
        ("NodeClaim", "key"),
        ("NodePool", "key"),
        (t("Type"), ""),
        (t("Zone"), ""),
        (t("Capacity type"), ""),
        (t("Cost an hour"), "num"),
        (t("Pods"), "num"),
    ]
    return table(t("NodeClaims"), columns, rows, "")


def _listed(items: Sequence[Markup]) -> Markup:
    return join(*(join(", " if number else "", item) for number, item in enumerate(items)))
