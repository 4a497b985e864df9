"""Answers kept for a while: asked for once, errors never kept, and losses believed at the second look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.subnets import SecurityGroup
from dovetail.cloud.aws.ttl_cache import ConfirmedListCache, TtlCache


def test_an_answer_is_asked_for_once_any_caller_wants_it_and_again_when_it_is_old() -> None:
    async def main() -> None:
        asked = 0

        async def ask() -> int:
            nonlocal asked
            await asyncio.sleep(1.0)
            asked += 1
            return asked

        memory: TtlCache[int] = TtlCache(Clock(asyncio.get_running_loop()), 60.0)
        assert await asyncio.gather(*(memory.get("a", ask) for _ in range(3))) == [1, 1, 1]
        await asyncio.sleep(59)
        assert await memory.get("a", ask) == 1
        await asyncio.sleep(1)
        assert await memory.get("a", ask) == 2
        memory.forget("a")
        assert await memory.get("a", ask) == 3

    run_virtual(main())


def test_an_error_is_not_kept() -> None:
    async def main() -> None:
        answers: Iterator[int | None] = iter([None, 7])

        async def ask() -> int:
            found = next(answers)
            if found is None:
                raise OSError("no answer")
            return found

        memory: TtlCache[int] = TtlCache(Clock(asyncio.get_running_loop()), 60.0)
        with pytest.raises(OSError, match="no answer"):
            await memory.get("a", ask)
        assert await memory.get("a", ask) == 7

    run_virtual(main())


def test_a_list_that_lost_something_is_believed_once_the_next_look_says_the_same() -> None:
    """A page left out must not make instances drift; what is added counts at once."""

    async def main() -> list[str]:
        looks = iter(["ab", "a", "ab", "b", "a", "a", "abc"])

        async def ask() -> tuple[SecurityGroup, ...]:
            return tuple(SecurityGroup(name, "", "") for name in next(looks))

        memory: ConfirmedListCache[SecurityGroup] = ConfirmedListCache(Clock(asyncio.get_running_loop()), 60.0)
        seen = []
        for _ in range(7):
            seen.append("".join(each.id for each in await memory.get("groups", ask)))
            await asyncio.sleep(61)
        return seen

    assert run_virtual(main()) == ["ab", "ab", "ab", "ab", "ab", "a", "abc"]
