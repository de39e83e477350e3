"""How long Triton has been compiling in this process, which is no training."""

from __future__ import annotations

from typing import Any

import triton

__all__ = ["COMPILING", "Stopwatch"]


class Stopwatch:
    """Adds up what Triton says of each kernel that it compiles or finds on disk."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._next: Any = None

    def attach(self, knobs: Any) -> None:
        """Hear of compilations from now on, beside whoever does so already."""
        self._next, knobs.compilation.listener = knobs.compilation.listener, self

    def __call__(self, **heard: Any) -> None:
        """Hear of one; its times are in microseconds."""
        self.seconds += heard["times"].total / 1e6
        if self._next is not None:
            self._next(**heard)


COMPILING = Stopwatch()
if hasattr(triton, "knobs"):  # from Triton 3.4 on; before, the seconds stay in the first epoch
    COMPILING.attach(triton.knobs)
