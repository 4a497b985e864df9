"""Questions to webhooks that a write waits for, and the answers so far."""

from __future__ import annotations

import msgspec

from dovetail.lab.apiserver.webhooks.matching import Phase, Webhook
from dovetail.lab.apiserver.webhooks.review import Verdict


class Question(msgspec.Struct, frozen=True):
    """One call of a webhook. `round` is 1 for a reinvocation."""

    phase: Phase
    webhook: Webhook
    round: int
    #: Of the review, which its answer has to repeat.
    uid: str
    body: bytes

    @property
    def key(self) -> tuple[str, str, int]:
        return self.phase, self.webhook.uid, self.round


class Outstanding(Exception):
    """Answers that a write needs before it can go on."""

    def __init__(self, questions: list[Question]) -> None:
        super().__init__(", ".join(question.webhook.name for question in questions))
        self.questions = questions


class Answers:
    """The webhooks' verdicts on one request so far, or why there is none."""

    __slots__ = ("audit", "held")

    def __init__(self) -> None:
        self.held: dict[tuple[str, str, int], Verdict | Exception] = {}
        #: Annotations for the audit log, by webhook and key.
        self.audit: dict[str, str] = {}
