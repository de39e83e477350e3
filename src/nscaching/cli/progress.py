"""Long work: its progress bar or lines of a log, and the signals or time limit that stop it."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from nscaching.config import TrainConfig
from nscaching.errors import Stopped
from nscaching.runs.escaping import duration, visible
from nscaching.training.listener import Listener, Stage

# In a log, where bars cannot move, a line at most this often.
LOG_SECONDS = 10.0

SHOW_CURSOR = "\x1b[?25h"  # which a progress bar hides


class Bar:
    """The progress bar of one task, on standard error."""

    def __init__(self, name: str) -> None:
        self.name, self.done, self.latest = visible(name), 0.0, ""
        self.total: float | None = None
        # The pace counts from the first report on: earlier work, such as compiling, happens once.
        self.first = 0.0  # what the first report said
        self.began: float | None = None
        self.last_line = time.monotonic()
        self.console = Console(stderr=True, highlight=False)
        self.bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}", markup=False, style="cyan"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bars.add_task(self.name, total=None, latest="")

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def say(self, line: str, style: str = "") -> None:
        self.console.print(Text(visible(line)), style=style, soft_wrap=True)

    def show(self, done: float, total: float | None, latest: str) -> None:
        if done < self.done:  # another part of the work, with a pace of its own
            self.first, self.began = 0.0, None
            self.bars.reset(self.task)
        if done > self.first and self.began is None:
            self.first, self.began = done, time.monotonic()
        self.done, self.total, self.latest = done, total, visible(latest)
        self.bars.update(self.task, completed=done, total=total, latest=self.latest)
        if time.monotonic() - self.last_line > LOG_SECONDS:
            self.log()

    def __call__(self, done: int, of: int) -> None:
        self.show(done, of, f"{done:,}/{of:,}")

    def stage(self, what: str, done: float, of: float) -> None:
        self.show(done, of, f"{what} {100 * done / of:.0f}%")

    def log(self) -> None:
        """Write a line, where there is no terminal to show a bar."""
        self.last_line = time.monotonic()
        if not self.console.is_terminal:
            left = ""
            if self.began is not None and self.total and self.first < self.done < self.total:
                pace = (self.last_line - self.began) / (self.done - self.first)
                left = f"  {duration(pace * (self.total - self.done))} left"
            self.say(f"{self.name}: {self.latest}{left}")


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


class TrainingDisplay(Bar, Listener):
    """The bar of a training run: epochs done, time left, latest loss and MRR.

    A signal acts at once before the first step, later after a step. ``left`` ends the message of a
    stop before the first step. In a ``series`` of runs, a ranking alone is no line of a log, and
    no run says which kernels it has.
    """

    def __init__(
        self,
        name: str,
        config: TrainConfig,
        signals: Signals | None = None,
        left: str = "",
        series: bool = False,
    ) -> None:
        super().__init__(name)
        self.epochs, self.epoch, self.loss, self.mrr = config.epochs, 0, "", ""
        self.signals, self.left, self.series = signals or Signals(), left, series

    def begin(self, history: list[dict[str, Any]]) -> None:
        self.epoch = self.first = sum("split" not in record for record in history)

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def announce(self, text: str) -> None:
        if not self.series:
            self.say(text, "dim")
        self.show(self.epoch, self.epochs, "first step: kernels are compiled at first use")
        self._stop_before_first_step()

    def record(self, record: dict[str, Any]) -> None:
        if "split" not in record:
            self.epoch, self.loss = record["epoch"], f"loss {record['loss']:.4f}"
            self._show(self.epoch)
        elif not record.get("traced"):
            at = f" at epoch {record['epoch']}" if record["split"] == "valid" else ""
            self.mrr = f"  {record['split']} MRR {record['mrr']:.4f}{at}"
            self._show(self.epoch)
            if not self.series:
                self.log()

    def progress(self, stage: Stage, done: int, total: int) -> None:
        if stage is Stage.FILLING:
            self.stage(stage.value, done, total)
            self._stop_before_first_step()
        elif stage in (Stage.VALID, Stage.TEST):
            self._show(self.epoch, f"  ranking {stage.value} {100 * done // total}%")
        else:
            self._show(self.epoch + done / total)

    def stop(self) -> bool:
        return self.signals()

    def _stop_before_first_step(self) -> None:
        self.signals.check(f"stopped before the first step{self.left}")

    def _show(self, epochs: float, doing: str = "") -> None:
        latest = f"epoch {self.epoch}/{self.epochs}  {self.loss}{self.mrr}{doing}"
        self.show(epochs, self.epochs, latest)
