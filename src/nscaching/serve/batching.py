"""Questions that arrive together are answered together: one product of matrices scores them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from nscaching.serve.refusals import Refusal

MOST = 64  # questions that are answered at once
WAITING = 2000  # questions that may wait


class Asked(NamedTuple):
    """A question by id, and how it is to be answered."""

    gap: int
    ids: tuple[int, int, int]  # head, relation, tail; 0 at the gap
    top: int
    mark: bool = False  # known facts are shown, marked
    any_type: bool = False

    @property
    def way(self) -> tuple[int, int, bool, bool]:
        """What questions must have in common to be answered at once."""
        return self.gap, self.top, self.mark, self.any_type


Answer = dict[str, Any]
AnswerAll = Callable[[Sequence[Asked]], list[Answer | Exception]]


class Batcher:
    """Collects questions while others are answered in a thread; an idle one answers at once."""

    def __init__(self, answer_all: AnswerAll, thread: Executor) -> None:
        self.answer_all, self.thread = answer_all, thread
        self.waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self.work: asyncio.Task[None] | None = None

    async def ask(self, asked: Asked) -> Answer:
        if len(self.waiting) >= WAITING:
            raise Refusal("busy", "too many questions wait; ask again")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.append((asked, future))
        if self.work is None or self.work.done():
            self.work = asyncio.create_task(self._answer_waiting())
        return await future

    async def _answer_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # what has arrived in this round of the loop comes along
        while self.waiting:
            batch, self.waiting = self.waiting[:MOST], self.waiting[MOST:]
            asked = [question for question, _ in batch]
            try:
                answers = await loop.run_in_executor(self.thread, self.answer_all, asked)
            except Exception as error:  # whoever waits must not wait forever
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():  # whoever asked has gone
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
