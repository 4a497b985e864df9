"""Answers about the past: what had been decided about an object by then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.controllers.explain.answer import Answer, lines
from dovetail.controllers.explain.pods import refused
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.language import message
from dovetail.model.meta import stamp


def past(decisions: Sequence[Decision], kind: str, name: str, moment: datetime, now: datetime) -> Answer:
    """`name` is namespace/name for a pod. Only what was recorded is said; the objects of then are gone."""
    moment_text, subject = stamp(moment), f"{kind}/{name}"
    oldest = decisions[0].time if decisions else ""
    if not oldest:
        line = message("there is no decision history in this cluster: only the present can be explained")
        return Answer(subject=subject, line=line, source="history", facts={"at": moment_text, "historyBegins": None})
    before = [decision for decision in decisions if decision.time <= moment_text and concerns(decision, name)]
    facts = {"at": moment_text, "historyBegins": oldest, "decisions": [decision.id for decision in before[-10:]]}
    if moment_text < oldest:
        line = message("the history does not reach back to {at}: it begins at {oldest}", at=moment_text, oldest=oldest)
        return Answer(subject=subject, line=line, source="history", facts=facts)
    if not before:
        line = message(
            "at {at} nothing had been decided about it; the history begins at {oldest}", at=moment_text, oldest=oldest
        )
        return Answer(subject=subject, line=line, source="history", facts=facts)
    last = before[-1]
    refusal = next((candidate for candidate in last.refusals if name in candidate.pods), None)
    if refusal is not None:
        answer = refused(name, refusal, before)
        line = message(
            "at {at} was {line} (decision {id} at {time})", at=moment_text, line=answer.line, id=last.id, time=last.time
        )
        return Answer(
            subject=subject,
            line=line,
            code=answer.code,
            object=answer.object,
            remedy=answer.remedy,
            source="history",
            details=answer.details,
            deep=answer.deep,
            facts=facts,
        )
    made = next((claim for claim in last.node_claims if name in (claim.claim, claim.pool)), None)
    if made is None and name in last.pods and len(last.node_claims) == 1:
        made = last.node_claims[0]
    where = f": {made.instance_type} in {made.zone}, {made.capacity_type}" if made is not None else ""
    why = f" ({last.reason})" if last.reason else ""
    line = message(
        "at {at} the last decision was {last_kind} at {time}: {summary}{where}{why}",
        at=moment_text,
        last_kind=last.kind,
        time=last.time,
        summary=last.summary,
        where=where,
        why=why,
    )
    return Answer(
        subject=subject,
        line=line,
        code=last.reason if last.reason.isupper() else "",
        source="history",
        details=tuple(message("cheaper, but {lost}", lost=lost) for lost in made.cheaper) if made is not None else (),
        deep=lines(before[-10:]),
        facts=facts,
    )
