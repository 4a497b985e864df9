"""Questions asked together: one call, an answer for each, and one failure does not spoil the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from dovetail.clock import run_virtual
from dovetail.cloud.aws.batcher import CallBatcher


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class Desk:
    """Knows the length of words; `bad` ones spoil a call."""

    def __init__(self, bad: Mapping[str, str] | None = None) -> None:
        self.bad = bad or {}
        self.calls: list[tuple[str, ...]] = []

    async def ask(self, words: Sequence[str]) -> Mapping[str, int]:
        self.calls.append(tuple(words))
        for word in words:
            if word in self.bad:
                raise Refused(self.bad[word])
        return {word: len(word) for word in words if word != "unknown"}


def together(desk: Desk, *words: str, most: int = 10) -> list[int | BaseException | None]:
    async def main() -> list[int | BaseException | None]:
        gathering = CallBatcher(desk.ask, most, "desk")
        return await asyncio.gather(*(gathering.get(word) for word in words), return_exceptions=True)

    return run_virtual(main())


def test_many_ask_in_one_call_and_each_gets_an_answer_of_their_own() -> None:
    desk = Desk()
    assert together(desk, "one", "three", "one", "unknown") == [3, 5, 3, None]
    assert desk.calls == [("one", "three", "unknown")]


def test_a_call_takes_so_many_and_the_rest_come_with_the_next() -> None:
    desk = Desk()
    assert together(desk, "a", "bb", "ccc", most=2) == [1, 2, 3]
    assert desk.calls == [("a", "bb"), ("ccc",)]


def test_where_one_that_is_not_there_spoils_a_call_each_is_asked_for_alone() -> None:
    desk = Desk({"gone": "InvalidInstanceID.NotFound"})
    first, second, third = together(desk, "a", "gone", "ccc")
    assert (first, third) == (1, 3)
    assert isinstance(second, Refused)
    assert desk.calls[1:] == [("a",), ("gone",), ("ccc",)]


def test_any_other_failure_fails_every_request_of_the_call() -> None:
    desk = Desk({"b": "UnauthorizedOperation"})
    assert all(isinstance(each, Refused) for each in together(desk, "a", "b"))
    assert len(desk.calls) == 1
