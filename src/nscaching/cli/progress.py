"""Long work on the command line: a bar when it is slow, and the signals that stop it."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from nscaching.config import TrainConfig
from nscaching.errors import Stopped
from nscaching.training.display import Bar, TrainingDisplay
from nscaching.training.listener import Stage

SHOW_CURSOR = "\x1b[?25h"  # which a progress bar hides


@contextmanager
def when_slow(name: str, after: float = 2.0) -> Iterator[Bar]:
    bar = Bar(name)

    def begin() -> None:
        bar.bars.start()
        bar.log()

    # By a separate clock: slow work may report seldom.
    clock = threading.Timer(after, begin)
    clock.daemon = True
    clock.start()
    try:
        yield bar
    finally:
        clock.cancel()
        clock.join()
        if bar.bars.live.is_started:
            bar.bars.stop()


@dataclass
class Course:
    """How far a training is, of several that run at the same time."""

    epochs: int
    epoch: int = 0
    part: float = 0.0  # of the next epoch

    def hear(self, stage: Stage, done: int, total: int) -> None:
        self.part = done / total if stage is Stage.TRAINING else 0.0

    @property
    def share(self) -> float:
        return (self.epoch + self.part) / max(1, self.epochs)

    def __str__(self) -> str:
        return f"epoch {self.epoch}/{self.epochs}"


def courses(running: Mapping[str, Course]) -> str:
    """Say where each training is, by the names of their processes."""
    return ", ".join(f"{where} {course}" for where, course in sorted(running.items()))


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
        return self.heard == 0 and time.monotonic() > self._end

    def check(self, message: str) -> None:
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


class WatchedTraining(TrainingDisplay):
    """The bar of a training run that signals stop: before the first step at once, later after one.

    ``left`` ends the message of a stop before the first step.
    """

    def __init__(
        self, name: str, config: TrainConfig, signals: Signals, left: str = "", series: bool = False
    ) -> None:
        super().__init__(name, config, series)
        self.signals, self.left = signals, left

    def stop(self) -> bool:
        return self.signals()

    def before_first_step(self) -> None:
        self.signals.check(f"stopped before the first step{self.left}")
