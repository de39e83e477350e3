"""What a person sees while a search goes on: a line for each trial, and a bar with an ETA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from nscaching.cli.progress import Bar
from nscaching.config import TrainConfig
from nscaching.training.listener import Stage
from nscaching.tuning.mattered import text
from nscaching.tuning.search import Watch

if TYPE_CHECKING:
    from nscaching.tuning.result import Tuning

__all__ = ["TuningDisplay"]


class TuningDisplay(Bar, Watch):
    """The bar of a search: trials done, time left, best MRR so far."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.before = self.trials = self.of = self.epochs = self.epoch = 0
        self.mrr, self.best, self.plan = "", "", ""

    def begin(self, tuning: Tuning, total: int) -> None:
        """Hear which trials there are already, and how many there will be."""
        self.before = self.trials = len(tuning.trials)
        self.of = total
        self._best(tuning)
        if self.before:
            self._say(f"{tuning.path}: {_there(self.before, total)}{self.best}")

    def start(self, config: TrainConfig, settings: dict[str, Any]) -> None:
        """Hear that a trial starts."""
        self.epochs, self.epoch, self.mrr = config.epochs, 0, ""
        self._show(0.0)

    def announce(self, plan: str) -> None:
        """Hear which kernels run; say it once."""
        if plan != self.plan:
            self.plan = plan
            self._say(f"{plan}; the first step compiles what is not yet", "dim")

    def observe(self, record: dict[str, Any]) -> None:
        """Hear a finished epoch or validation."""
        self.epoch = record["epoch"]
        if "mrr" in record:
            self.mrr = f"  MRR {record['mrr']:.4f}"
        self._show(self.epoch)

    def progress(self, stage: Stage, done: int, total: int) -> None:
        """Hear a step inside an epoch or a validation."""
        self._show(self.epoch + done / total if stage is Stage.TRAINING else self.epoch)

    def end(self, tuning: Tuning) -> None:
        """Say how the trial was."""
        trial = tuning.trials[-1]
        self.trials, self.epoch = trial.number, 0
        settings = "  ".join(f"{name} {text(value)}" for name, value in trial.settings.items())
        how: str = trial.state
        if trial.state == "finished":
            how = "best" if tuning.best is trial else ""
        elif trial.state == "pruned":
            how = f"pruned at epoch {trial.epochs}"
        width = len(str(self.of))
        result = "–     " if trial.state == "failed" else f"{trial.mrr:.4f}"
        line = f"trial {trial.number:{width}}/{self.of}  MRR {result}  {settings}"
        why = f": {trial.reason}" if trial.reason else ""
        self._say(f"{line}  {trial.seconds:.1f} s  {how}{why}".rstrip())
        self._best(tuning)
        self._show(0.0)

    def stopped(self, out: Path) -> None:
        """Say how to go on after Ctrl-C."""
        done = f"{self.trials} of {self.of} trials are kept in {out}"
        self._say(f"{done}; the same command goes on from there")

    def _best(self, tuning: Tuning) -> None:
        finished = [trial for trial in tuning.trials if trial.state == "finished"]
        self.best = f"  best {tuning.best.mrr:.4f} (trial {tuning.best.number})" if finished else ""

    def _say(self, line: str, style: str = "") -> None:
        self.console.print(Text(line), style=style, soft_wrap=True)

    def _show(self, epochs: float) -> None:
        """Count the trials of this process alone: those of before took none of its time."""
        done = self.trials - self.before + (epochs / self.epochs if self.epochs else 0.0)
        now = f"trial {min(self.trials + 1, self.of)}/{self.of}"
        latest = f"{now}  epoch {self.epoch}/{self.epochs}{self.mrr}{self.best}"
        self.show(done, float(self.of - self.before), latest)


def _there(before: int, total: int) -> str:
    """Say how many trials there are: part of those asked for, or more, which all stay."""
    if before <= total:
        return f"{before} of {total} trials are there"
    asked = "1 was" if total == 1 else f"{total} were"
    return f"{before} trials are there, {asked} asked for"
