"""What a person sees while something takes time: bars with an ETA, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from nscaching.config import TrainConfig

__all__ = ["TrainingDisplay", "counting", "downloading"]

# In a log, where bars cannot move, a line at most this often.
LOG_SECONDS = 10.0


def _console() -> Console:
    return Console(stderr=True, highlight=False)


def _bars(console: Console) -> Progress:
    text = TextColumn("{task.description}", markup=False)
    latest = TextColumn("{task.fields[latest]}", markup=False, style="cyan")
    return Progress(
        SpinnerColumn(), text, BarColumn(), TimeRemainingColumn(), latest,
        console=console, disable=not console.is_terminal, transient=False,
    )  # fmt: skip


class TrainingDisplay:
    """One bar for a training run: epochs done, time left, latest loss and validation MRR."""

    def __init__(self, name: str, config: TrainConfig) -> None:
        self.name, self.epochs = name, config.epochs
        self.console = _console()
        self.bars = _bars(self.console)
        self.task = self.bars.add_task(name, total=float(config.epochs), latest="")
        self.epoch, self.loss, self.mrr = 0, "", ""
        self.last_line = time.monotonic()

    def __enter__(self) -> TrainingDisplay:
        self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def observe(self, record: dict[str, Any]) -> None:
        """Hear a finished epoch or ranking."""
        if "split" in record:
            self.mrr = f"  {record['split']} MRR {record['mrr']:.4f}"
        else:
            self.epoch, self.loss = record["epoch"], f"loss {record['loss']:.4f}"
        self._show(self.epoch, "")
        due = time.monotonic() - self.last_line > LOG_SECONDS
        if not self.console.is_terminal and ("split" in record or due):
            self.last_line = time.monotonic()
            line = f"{self.name}: epoch {self.epoch}/{self.epochs}  {self.loss}{self.mrr}"
            self.console.print(Text(line), soft_wrap=True)

    def progress(self, what: str, done: int, of: int) -> None:
        """Hear a step inside an epoch or a ranking."""
        if what == "training":
            self._show(self.epoch + done / of, "")
        else:
            self._show(self.epoch, f"  ranking {what} {100 * done // of}%")

    def _show(self, epochs: float, doing: str) -> None:
        latest = f"epoch {self.epoch}/{self.epochs}  {self.loss}{self.mrr}{doing}"
        self.bars.update(self.task, completed=epochs, latest=latest)


@contextmanager
def counting(name: str) -> Iterator[Any]:
    """Show a bar for something that reports (done, in all)."""
    with _bars(_console()) as bars:
        task = bars.add_task(name, total=None, latest="")

        def progress(done: int, of: int) -> None:
            bars.update(task, completed=done, total=of, latest=f"{done:,}/{of:,}")

        yield progress


@contextmanager
def downloading(name: str) -> Iterator[Any]:
    """Show a bar for each file that is fetched."""
    with _bars(_console()) as bars:
        tasks: dict[str, Any] = {}

        def progress(file: str, done: int, of: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(f"{name} {file}", total=of, latest="")
            bars.update(tasks[file], completed=done, latest=f"{done / 1e6:.1f} MB")

        yield progress
