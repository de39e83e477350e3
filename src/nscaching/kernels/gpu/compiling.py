"""Seconds that Triton has spent compiling in this process, to leave out of training times."""

from typing import Any

import triton


class Stopwatch:
    """A listener that adds up the seconds of each kernel compiled or loaded from disk."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._next: Any = None

    def attach(self, knobs: Any) -> None:
        """Listen to compilations from now on; an earlier listener is still called."""
        self._next, knobs.compilation.listener = knobs.compilation.listener, self

    def __call__(self, **event: Any) -> None:
        """Add the seconds of one kernel; Triton reports microseconds."""
        self.seconds += event["times"].total / 1e6
        if self._next is not None:
            self._next(**event)


COMPILING = Stopwatch()
if hasattr(triton, "knobs"):  # from Triton 3.4 on; before, the seconds stay in the first epoch
    COMPILING.attach(triton.knobs)
