"""Calls that a request waits for, and their answers so far.

A write runs without waiting, so that it sees one state of the store. Where it needs an answer from outside it stops
with `PendingCalls`; the server gets the answer and runs the write again from its start. Nothing was stored yet, and
what was drawn at random (uid, name) is drawn once for all runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import msgspec

from dovetail.kube.transport import Response
from dovetail.lab.apiserver.status_errors import StatusError

#: A write takes no longer, whatever it waits for.
REQUEST_TIMEOUT_S = 34.0


class WebhookCall(msgspec.Struct, frozen=True):
    """One call: `ask` gets the seconds that are left and returns an answer or what went wrong."""

    key: Hashable
    ask: Callable[[float], Awaitable[Any]]


class PendingCalls(Exception):
    """Answers that a request needs before it can go on."""

    def __init__(self, questions: list[WebhookCall]) -> None:
        super().__init__(", ".join(str(question.key) for question in questions))
        self.questions = questions


class Committed(PendingCalls):
    """A write that is done, and needs answers before it can be shown: it must not run again."""

    def __init__(self, questions: list[WebhookCall], show: Callable[[], Response]) -> None:
        super().__init__(questions)
        self.show = show


def after_commit(show: Callable[[], Response]) -> Response:
    """The response of a write that is done."""
    try:
        return show()
    except PendingCalls as outstanding:
        raise Committed(outstanding.questions, show) from outstanding


class Answers:
    """The answers to one request's questions so far."""

    __slots__ = ("audit", "budget_s", "deadline", "held")

    def __init__(self, budget_s: float = REQUEST_TIMEOUT_S) -> None:
        self.held: dict[Hashable, Any] = {}
        #: Annotations for the audit log.
        self.audit: dict[str, str] = {}
        self.budget_s = budget_s
        self.deadline: float | None = None

    def get(self, question: WebhookCall) -> Any:
        """The answer, if it is there; otherwise the request stops here until it is."""
        if question.key not in self.held:
            raise PendingCalls([question])
        return self.held[question.key]

    async def ask(self, questions: list[WebhookCall]) -> None:
        """Ask all at once. Raises StatusError when the request has taken too long altogether."""
        now = asyncio.get_running_loop().time()
        if self.deadline is None:
            self.deadline = now + self.budget_s
        left = self.deadline - now
        if left > 0:
            try:
                async with asyncio.timeout(left):
                    answers = await asyncio.gather(*(question.ask(left) for question in questions))
                self.held.update(zip((question.key for question in questions), answers, strict=True))
                return
            except TimeoutError:
                pass
        why = "request did not complete within requested timeout - context deadline exceeded"
        raise StatusError(504, "Timeout", f"Timeout: {why}", {})
