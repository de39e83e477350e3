"""Out-of-memory errors, and work in chunks that are halved until they fit into memory."""

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

from nscaching.errors import UserError

T = TypeVar("T")

# PyTorch has a class for a GPU's memory, a subclass of RuntimeError, and none for the CPU's.
SIGNS = ("out of memory", "can't allocate memory", "ALLOC_FAILED")


def is_shortage(error: BaseException) -> bool:
    words = isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)
    return words or isinstance(error, MemoryError)


class Chunks:
    """Goes through rows in chunks; when memory runs out, in chunks of half the size."""

    def __init__(self, size: int, what: str = "queries") -> None:
        self.size = self._asked = size
        """Rows of a chunk; fewer after a shortage."""
        self.what = what

    def over(self, total: int, work: Callable[[slice], T]) -> Iterator[tuple[slice, T]]:
        """Yield (some, work(some)) for consecutive slices of range(total)."""
        begin = 0
        while begin < total:
            some = slice(begin, min(begin + self.size, total))
            try:
                done = work(some)
            except (MemoryError, RuntimeError) as error:
                if not is_shortage(error):
                    raise
            else:
                begin = some.stop
                yield some, done
                continue
            # After the except block: the frames of the error hold no memory any more.
            self._halve(some.stop - some.start)

    def _halve(self, tried: int) -> None:
        if tried == 1:
            one = {"queries": "query", "triples": "triple", "entities": "entity"}[self.what]
            raise UserError(f"not enough memory for even one {one} at a time")
        if self.size >= self._asked:  # said once
            warnings.warn(
                f"not enough memory for {tried:,} {self.what} at once: going on with fewer",
                stacklevel=4,
            )
        self.size = tried // 2
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
