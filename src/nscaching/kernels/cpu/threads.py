"""Threads for compiled loops."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads within the context; 0 leaves the number as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Threads:
    """Runs independent parts of a loop in parallel, on threads that sleep between loops."""

    def __init__(self) -> None:
        self.count = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(max(1, self.count - 1), "nscaching")

    def run(self, loop: Callable[..., Any], length: int, *arguments: Any) -> list[Any]:
        """Call loop(begin, end, *arguments) on the parts of range(length); return its results."""
        return self.run_each(loop, length, [arguments] * self.count)

    def run_each(
        self, loop: Callable[..., Any], length: int, arguments: Sequence[Sequence[Any]]
    ) -> list[Any]:
        """Call the loop like ``run``, with separate arguments for each part."""
        bounds = [length * part // self.count for part in range(self.count + 1)]
        others = [
            self._pool.submit(loop, bounds[part], bounds[part + 1], *arguments[part])
            for part in range(1, self.count)
        ]
        mine = loop(bounds[0], bounds[1], *arguments[0])
        return [mine, *(other.result() for other in others)]
