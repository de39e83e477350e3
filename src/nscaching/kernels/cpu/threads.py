"""Threads for compiled loops."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads within the context; 0 leaves the number as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """Give torch some threads (0: those it has), and make subnormal numbers zero; undo both after.

    With subnormal numbers, arithmetic on a CPU is a hundred times slower.
    """
    flushed = (torch.tensor(1e-40) * 1).item() == 0  # torch has no getter
    torch.set_flush_denormal(True)
    try:
        with torch_threads(threads):
            yield
    finally:
        torch.set_flush_denormal(flushed)


LITTLE = 1 << 16  # numbers that one thread is through with before another wakes up


class Threads:
    """Runs independent parts of a loop in parallel, on threads that sleep between loops."""

    def __init__(self) -> None:
        self.count = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(max(1, self.count - 1), "nscaching")

    def run(
        self,
        loop: Callable[..., Any],
        length: int,
        *arguments: Any,
        each: Sequence[Any] = (),
        numbers: int = LITTLE,
    ) -> list[Any]:
        """Call loop(begin, end, *arguments) on the parts of range(length); return its results.

        The loop gets tensors as arrays, and last its part's own argument where ``each`` has one.
        Where it goes through few ``numbers``, this thread makes all of it.
        """
        given = [a.numpy() if isinstance(a, Tensor) else a for a in arguments]
        if numbers < LITTLE:
            return [loop(0, length, *given)]
        bounds = [length * part // self.count for part in range(self.count + 1)]
        calls = [(*bounds[k : k + 2], *given, *each[k : k + 1]) for k in range(self.count)]
        others = [self._pool.submit(loop, *call) for call in calls[1:]]
        return [loop(*calls[0]), *(other.result() for other in others)]
