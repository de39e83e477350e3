"""What long work shows: a progress bar, or lines of a log where no bar can move."""

import time
from importlib.util import find_spec
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from nscaching.config import TrainConfig
from nscaching.runs.escaping import duration, visible
from nscaching.runs.folder import split_name
from nscaching.training.listener import Listener, Stage

# In a log, where bars cannot move, a line at most this often.
LOG_SECONDS = 10.0


class Bar:
    """The progress bar of one task, on standard error or in a notebook."""

    def __init__(self, name: str) -> None:
        self.name, self.done, self.latest = visible(name), 0.0, ""
        self.total: float | None = None
        # The pace counts from the first report on: earlier work, such as compiling, happens once.
        self.first = 0.0  # what the first report said
        self.began: float | None = None
        self.last_line = time.monotonic()
        self.console = Console(stderr=True, highlight=False)
        self.moves = _can_move(self.console)
        self.bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}", markup=False, style="cyan"),
            console=self.console,
            disable=not self.moves,
        )
        self.task = self.bars.add_task(self.name, total=None, latest="")

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.moves:
            self.bars.refresh()  # a notebook would keep an older state
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
        """Write a line, where no bar can move."""
        self.last_line = time.monotonic()
        if not self.moves:
            left = ""
            if self.began is not None and self.total and self.first < self.done < self.total:
                pace = (self.last_line - self.began) / (self.done - self.first)
                left = f"  {duration(pace * (self.total - self.done))} left"
            self.say(f"{self.name}: {self.latest or '…'}{left}")


def _can_move(console: Console) -> bool:
    """Return whether a bar can move here: in a terminal, or in a notebook with ipywidgets."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal


class TrainingDisplay(Bar, Listener):
    """The bar of a training run: epochs done, time left, latest loss and MRR.

    In a ``series`` of runs, a ranking alone is no line of a log, and no run says which kernels it
    has.
    """

    def __init__(self, name: str, config: TrainConfig, series: bool = False) -> None:
        super().__init__(name)
        self.epochs, self.epoch, self.loss, self.mrr = config.epochs, 0, "", ""
        self.series = series

    def begin(self, history: list[dict[str, Any]]) -> None:
        self.epoch = self.first = sum("split" not in record for record in history)

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def announce(self, text: str) -> None:
        if not self.series:
            self.say(text, "dim")
        self.show(self.epoch, self.epochs, "first step: kernels are compiled at first use")
        self.before_first_step()

    def record(self, record: dict[str, Any]) -> None:
        if "split" not in record:
            self.epoch, self.loss = record["epoch"], f"loss {record['loss']:.4f}"
            self._show(self.epoch)
        elif not record.get("traced"):
            at = f" at epoch {record['epoch']}" if record["split"] == "valid" else ""
            self.mrr = f"  {split_name(record)} MRR {record['mrr']:.4f}{at}"
            self._show(self.epoch)
            if not self.series:
                self.log()

    def progress(self, stage: Stage, done: int, total: int) -> None:
        if stage is Stage.FILLING:
            self.stage(stage.value, done, total)
            self.before_first_step()
        elif stage in (Stage.VALID, Stage.TEST):
            self._show(self.epoch, f"  ranking {stage.value} {100 * done // total}%")
        else:
            self._show(self.epoch + done / total)

    def before_first_step(self) -> None:
        """Raise ``Stopped`` to end the run before its first step."""

    def _show(self, epochs: float, doing: str = "") -> None:
        latest = f"epoch {self.epoch}/{self.epochs}  {self.loss}{self.mrr}{doing}"
        self.show(epochs, self.epochs, latest)
