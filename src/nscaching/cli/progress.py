"""Progress on standard error: a bar with the time left, or plain lines in a log."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

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
        self.under_way = False
        self.console = Console(stderr=True, highlight=False)
        self.began = self.last_line = time.monotonic()
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def show(self, done: float, total: float | None, latest: str) -> None:
        """Show how much is done, and the latest news."""
        if done > self.first and not self.under_way:
            # Work before the first report, such as compiling, happens once: it gives no pace.
            self.under_way, self.first, self.began = True, done, time.monotonic()
        self.done, self.total, self.latest = done, total, visible(latest)
        self.bars.update(self.task, completed=done, total=total, latest=self.latest)
        if time.monotonic() - self.last_line > LOG_SECONDS:
            self.log()

    def stage(self, what: str, done: float, of: float) -> None:
        """Show the progress of one of several parts; the time left counts from its beginning."""
        if not self.latest.startswith(what):
            self.restart(0.0)
        self.show(done, of, f"{what} {100 * done / of:.0f}%")

    def restart(self, first: float) -> None:
        """Measure the pace again, from the next report on, with so much done before."""
        self.first, self.under_way = first, False
        self.bars.reset(self.task)

    def log(self) -> None:
        """Write a line, where there is no terminal to show a bar."""
        self.last_line = time.monotonic()
        if not self.console.is_terminal:
            left = ""
            if self.total and self.first < self.done < self.total:
                pace = (self.last_line - self.began) / (self.done - self.first)
                left = f"  {duration(pace * (self.total - self.done))} left"
            self.console.print(Text(f"{self.name}: {self.latest}{left}"), soft_wrap=True)


class TrainingDisplay(Bar, Listener):
    """The bar of a training run: epochs done, time left, latest loss and MRR."""

    def __init__(self, name: str, config: TrainConfig) -> None:
        super().__init__(name, float(config.epochs))
        self.epochs, self.epoch, self.loss, self.mrr = config.epochs, 0, "", ""
        self.stepped = False

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Start the bar at the epochs of a run that resumes."""
        self.epoch = self.first = sum("split" not in record for record in history)
        self.done = self.first

    def note(self, text: str) -> None:
        """Show a warning."""
        self.console.print(Text(f"note: {visible(text)}"), soft_wrap=True)

    def announce(self, text: str) -> None:
        """Show which kernels run; the first step may have to compile them."""
        self.console.print(Text(visible(text)), style="dim", soft_wrap=True)
        self.show(self.epoch, float(self.epochs), "first step: kernels are compiled at first use")

    def record(self, record: dict[str, Any]) -> None:
        """Show a finished epoch or ranking."""
        if "split" not in record:
            self.epoch, self.loss = record["epoch"], f"loss {record['loss']:.4f}"
            self._show(self.epoch)
            return
        if record.get("traced"):
            return
        self.mrr = f"  {record['split']} MRR {record['mrr']:.4f}"
        if record["split"] == "valid":
            self.mrr += f" at epoch {record['epoch']}"
        self._show(self.epoch)
        self.log()

    def progress(self, stage: Stage, done: int, total: int) -> None:
        """Show a step of an epoch, of a ranking, or of the preparation."""
        if stage is Stage.TRAINING:
            if not self.stepped:  # the preparation had another pace
                self.stepped = True
                self.restart(self.epoch)
            self._show(self.epoch + done / total)
        elif stage in (Stage.VALID, Stage.TEST):
            self._show(self.epoch, f"  ranking {stage.value} {100 * done // total}%")
        else:
            self.stage(stage.value, done, total)

    def _show(self, epochs: float, doing: str = "") -> None:
        latest = f"epoch {self.epoch}/{self.epochs}  {self.loss}{self.mrr}{doing}"
        self.show(epochs, float(self.epochs), latest)


class SeriesDisplay(TrainingDisplay):
    """The bar of one training run among many: a log gets a line now and then only."""

    def log(self) -> None:
        """Write a line if the last line is some time ago."""
        if time.monotonic() - self.last_line > LOG_SECONDS:
            super().log()


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for work that reports (done, in all)."""
    with Bar(name) as bar:
        yield lambda done, of: bar.show(done, of, f"{done:,}/{of:,}")


@contextmanager
def when_slow(name: str, after: float = 2.0) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for work that reports (done, in all), if it takes more than some seconds."""
    with _late(Bar(name), after) as bar:
        yield lambda done, of: bar.show(done, of, f"{done:,}/{of:,}")


@contextmanager
def loading(name: str, after: float = 2.0) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for work that reports (task, done, in all), if it takes some seconds."""
    with _late(Bar(name), after) as bar:
        yield lambda what, done, of: bar.stage(what, done, of)


@contextmanager
def _late(bar: Bar, after: float) -> Iterator[Bar]:
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


@contextmanager
def downloading(name: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a bar for the files that are fetched one after the other."""
    with Bar(name) as bar:
        yield lambda file, done, of: bar.show(done, of, f"{file}  {done / 1e6:.1f} MB")
