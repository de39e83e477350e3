"""Threads for compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Threads", "torch_threads"]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch have this many threads for a while; 0: as many as it has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Threads:
    """Runs parts of a loop side by side. The parts do not depend on each other."""

    def __init__(self) -> None:
        self.count = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(max(1, self.count - 1), "nscaching")

    def run(self, loop: Callable[..., Any], length: int, *arguments: Any) -> list[Any]:
        """Call loop(begin, end, *arguments) on the parts of range(length); return its results."""
        return self.run_each(loop, length, [arguments] * self.count)

    def run_each(
        self, loop: Callable[..., Any], length: int, arguments: Sequence[Sequence[Any]]
    ) -> list[Any]:
        """Do the same with arguments of its own for each part."""
        bounds = [length * part // self.count for part in range(self.count + 1)]
        others = [
            self._pool.submit(loop, bounds[part], bounds[part + 1], *arguments[part])
            for part in range(1, self.count)
        ]
        mine = loop(bounds[0], bounds[1], *arguments[0])
        return [mine, *(other.result() for other in others)]
