"""Questions asked at about the same time go to AWS in one call; each caller gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from dovetail.cloud.aws.errors import is_not_found

V = TypeVar("V")

#: How long a question waits for others, in seconds.
GATHER = 0.1


class CallBatcher(Generic[V]):
    """`ask` answers for many names at once; a name that its answer leaves out has None for an answer.

    Where a batch fails by the fault of one name, each name is asked for on its own.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[str]], Awaitable[Mapping[str, V]]],
        most: int,
        name: str,
        *,
        splits: Callable[[Exception], bool] = is_not_found,
        complete: bool = False,
        observe: Callable[[str, int, float], None] = lambda name, size, seconds: None,
    ) -> None:
        """`splits`: whether a failure may be one name's fault. With `complete`, silence about a name is a failure too.

        `observe` gets the batcher's name, the size of each batch, and how long it was gathered for.
        """
        self._ask = ask
        self._most = most
        self._name = name
        self._splits = splits
        self._complete = complete
        self._observe = observe
        self._waiting: dict[str, asyncio.Future[V | None]] = {}
        self._sweep: asyncio.Task[None] | None = None

    async def get(self, name: str) -> V | None:
        if name not in self._waiting:
            self._waiting[name] = asyncio.get_running_loop().create_future()
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._gathered(), name=self._name)
        return await asyncio.shield(self._waiting[name])

    async def _gathered(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHER)
            batch = {name: self._waiting.pop(name) for name in list(self._waiting)[: self._most]}
            self._observe(self._name, len(batch), GATHER)
            await self._answer(list(batch), batch)

    async def _answer(self, names: Sequence[str], waiting: Mapping[str, asyncio.Future[V | None]]) -> None:
        """One call; where one bad name spoils it, each on its own."""
        try:
            answer = await self._ask(names)
        except Exception as error:  # every waiter gets it; nothing is swallowed
            if len(names) > 1 and self._splits(error):
                await self._one_by_one(names, waiting)
                return
            for name in names:
                waiting[name].set_exception(error)
                waiting[name].exception()  # seen: a waiter may have been cancelled meanwhile
            return
        left_out = [name for name in names if name not in answer] if self._complete and len(names) > 1 else []
        for name in names:
            if name not in left_out:
                waiting[name].set_result(answer.get(name))
        await self._one_by_one(left_out, waiting)

    async def _one_by_one(self, names: Sequence[str], waiting: Mapping[str, asyncio.Future[V | None]]) -> None:
        await asyncio.gather(*(self._answer([name], waiting) for name in names))
