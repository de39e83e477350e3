"""Progress on standard error: a bar with the time left, or plain lines in a log."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from nscaching.cli.signals import Signals
from nscaching.config import TrainConfig
from nscaching.runs.duration import duration
from nscaching.runs.escaping import visible
from nscaching.training.listener import Listener, Stage

# In a log, where bars cannot move, a line at most this often.
LOG_SECONDS = 10.0


class Bar:
    """The progress bar of one task, on standard error."""

    def __init__(self, name: str, total: float | None = None) -> None:
        self.name, self.total, self.done, self.latest = visible(name), total, 0.0, ""
        self.first = 0.0  # done before this process began
        self.began: float | None = None  # none before the first report
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
        self.task = self.bars.add_task(self.name, total=total, latest="")

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def say(self, line: str, style: str = "") -> None:
        """Write a line above the bar."""
        self.console.print(Text(visible(line)), style=style, soft_wrap=True)

    def show(self, done: float, total: float | None, latest: str) -> None:
        """Show how much is done, and the latest news."""
        if done > self.first and self.began is None:
            # Work before the first report, such as compiling, happens once: it gives no pace.
            self.first, self.began = done, time.monotonic()
        self.done, self.total, self.latest = done, total, visible(latest)
        self.bars.update(self.task, completed=done, total=total, latest=self.latest)
        if time.monotonic() - self.last_line > LOG_SECONDS:
            self.log()

    def __call__(self, done: int, of: int) -> None:
        """Show how many are done of all."""
        self.show(done, of, f"{done:,}/{of:,}")

    def stage(self, what: str, done: float, of: float) -> None:
        """Show the progress of one of several parts; the time left counts from its beginning."""
        if not self.latest.startswith(what):
            self.restart(0.0)
        self.show(done, of, f"{what} {100 * done / of:.0f}%")

    def restart(self, first: float) -> None:
        """Measure the pace again, from the next report on, with so much done before."""
        self.first, self.began = first, None
        self.bars.reset(self.task)

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
    """Show a bar if the work takes more than some seconds."""
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


class TrainingDisplay(Bar, Listener):
    """The bar of a training run: epochs done, time left, latest loss and MRR.

    A signal acts at once before the first step, later after a step. ``left`` ends the message of a
    stop before the first step.
    """

    def __init__(
        self, name: str, config: TrainConfig, signals: Signals | None = None, left: str = ""
    ) -> None:
        super().__init__(name, float(config.epochs))
        self.epochs, self.epoch, self.loss, self.mrr = config.epochs, 0, "", ""
        self.signals, self.left = signals or Signals(), left

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Start the bar at the epochs of a run that resumes."""
        self.epoch = self.first = sum("split" not in record for record in history)
        self.done = self.first

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def announce(self, text: str) -> None:
        """Show which kernels run; the first step may have to compile them."""
        self.say(text, "dim")
        self.show(self.epoch, float(self.epochs), "first step: kernels are compiled at first use")
        self._stop_before_first_step()

    def record(self, record: dict[str, Any]) -> None:
        if "split" not in record:
            self.epoch, self.loss = record["epoch"], f"loss {record['loss']:.4f}"
            self._show(self.epoch)
        elif not record.get("traced"):
            at = f" at epoch {record['epoch']}" if record["split"] == "valid" else ""
            self.mrr = f"  {record['split']} MRR {record['mrr']:.4f}{at}"
            self._show(self.epoch)
            self.log()

    def progress(self, stage: Stage, done: int, total: int) -> None:
        if stage.before_first_step:
            self.stage(stage.value, done, total)
            self._stop_before_first_step()
        elif stage.ranks:
            self._show(self.epoch, f"  ranking {stage.value} {100 * done // total}%")
        else:
            if not self.latest.startswith("epoch"):  # the preparation had another pace
                self.restart(self.epoch)
            self._show(self.epoch + done / total)

    def stop(self) -> bool:
        return self.signals()

    def _stop_before_first_step(self) -> None:
        self.signals.check(f"stopped before the first step{self.left}")

    def _show(self, epochs: float, doing: str = "") -> None:
        latest = f"epoch {self.epoch}/{self.epochs}  {self.loss}{self.mrr}{doing}"
        self.show(epochs, float(self.epochs), latest)


class SeriesDisplay(TrainingDisplay):
    """The bar of one training run among many: a log gets a line now and then only."""

    def announce(self, text: str) -> None:
        """Say nothing: the line would be the same for each training run."""

    def log(self) -> None:
        if time.monotonic() - self.last_line > LOG_SECONDS:
            super().log()
