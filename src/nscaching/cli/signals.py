"""SIGINT, SIGTERM and a time limit for work that can stop after a step and resume later."""

import math
import os
import signal
import sys
import threading
import time
from typing import Any, Self

from nscaching.errors import Stopped

SHOW_CURSOR = "\x1b[?25h"  # which a progress bar hides


class Signals:
    """Handles signals within a ``with`` block; calling the object says whether to stop.

    The answer is yes after a signal, or when the given seconds have passed since the start. A
    second signal ends the process at once: files are whole at any moment.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.heard = 0
        self._end = time.monotonic() + seconds
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.heard != 0 or self.late

    @property
    def late(self) -> bool:
        """Whether the time limit, and no signal, stops the work."""
        return self.heard == 0 and time.monotonic() > self._end

    def check(self, message: str) -> None:
        """Stop if there was a signal."""
        if self.heard:
            raise Stopped(message)

    def _hear(self, number: int, _frame: object) -> None:
        if self.heard:
            _tell(SHOW_CURSOR)
            os._exit(128 + number)
        self.heard = number
        _tell("\nstopping after this step; a second signal stops at once\n")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other may ask for signals
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # such as under nohup
                    self._before[number] = before
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if isinstance(error, Stopped) and self.heard:
            error.code = 128 + self.heard


def _tell(text: str) -> None:
    """Write to a terminal directly, whatever else is writing to it."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), text.encode())
