"""What ``nscaching tune`` shows: the space, a bar and a line per trial, the results."""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution

from nscaching.cli.progress import Course, courses
from nscaching.cli.tables import note, print_json, print_table, say
from nscaching.config import TrainConfig
from nscaching.training.display import Bar
from nscaching.training.listener import Stage
from nscaching.tuning.result import BEST, PLOT, TRIALS, Trial, Tuning
from nscaching.tuning.search import Watch
from nscaching.tuning.space import Space, short, size

TOP = 10  # trials in the table


class TuningDisplay(Bar, Watch):
    """The bar of a search: trials done, time left, best MRR so far; a line for each trial."""

    before = trials = of = 0
    mrr = best = plan = ""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.running: dict[str, Course] = {}  # trials, by their process

    def begin_search(self, tuning: Tuning, total: int) -> None:
        self.before, self.of = len(tuning.trials), total
        self._count(tuning)
        if self.before:
            self.say(f"{tuning.path}: trials so far: {self.before}, asked for: {total}{self.best}")

    def start(self, config: TrainConfig) -> None:
        self.running[self.where], self.mrr = Course(config.epochs), ""
        self._show()

    def announce(self, plan: str) -> None:
        if plan != self.plan:  # the kernels are said once
            self.plan = plan
            self.say(f"{plan}; the first step compiles what is not yet", "dim")

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def record(self, record: dict[str, Any]) -> None:
        self.running[self.where].epoch = record["epoch"]
        if "mrr" in record:
            self.mrr = f"  valid MRR {record['mrr']:.4f}"
        self._show()

    def progress(self, stage: Stage, done: int, total: int) -> None:
        self.running[self.where].hear(stage, done, total)
        self._show()

    def interrupted(self, reason: str) -> None:
        del self.running[self.where]
        self.say(reason)

    def end(self, tuning: Tuning) -> None:
        trial = tuning.trials[-1]
        settings = "  ".join(f"{name} {short(value)}" for name, value in trial.settings.items())
        how = {
            "finished": "best" if tuning.finished and tuning.best is trial else "",
            "pruned": f"pruned at epoch {trial.epochs}",
            "failed": f"failed: {trial.reason}",
        }[trial.state]
        number = f"trial {trial.number:{len(str(self.of))}}/{self.of}"
        seconds = f"{trial.seconds:.1f} s{self.where and f' on {self.where}'}"
        self.say(f"{number}  valid MRR {_mrr(trial):6}  {settings}  {seconds}  {how}".rstrip())
        self.running.pop(self.where, None)  # none: its settings exclude each other
        self._count(tuning)
        self._show()

    def stopped(self, out: Path) -> None:
        done = f"{self.trials} of {self.of} trials are kept in {out}"
        self.say(f"{done}; the same command continues there")

    def _count(self, tuning: Tuning) -> None:
        self.trials = len(tuning.trials)
        if tuning.finished:
            self.best = f"  best {tuning.best.mrr:.4f} (trial {tuning.best.number})"

    def _show(self) -> None:
        """Count the trials of this process alone: earlier trials took none of its time."""
        done = self.trials - self.before + sum(course.share for course in self.running.values())
        now = f"trial {min(self.trials + 1, self.of)}/{self.of}"
        if self.where:
            now, self.mrr = f"{self.trials}/{self.of} trials", ""
        latest = f"{now}  {courses(self.running).strip()}{self.mrr}{self.best}"
        self.show(done, float(self.of - self.before), latest)


def show_space(space: Space) -> None:
    parts = []
    for name, part in space.items():
        if isinstance(part, CategoricalDistribution):
            parts.append(f"{name} {', '.join(map(short, part.choices))}")
        else:
            log = " (log)" if part.log else ""
            parts.append(f"{name} {short(part.low)} to {short(part.high)}{log}")
    points = math.prod(size(part) for part in space.values())
    count = f" ({points:,.0f} combinations)" if points < math.inf else ""
    note(f"tuning {'; '.join(parts)}{count}")


def show_tuning(tuning: Tuning, as_json: bool) -> None:
    assert tuning.path is not None
    best = tuning.best  # an error if no trial finished, before anything is printed
    command = f"nscaching train --config {shlex.quote(str(tuning.path / BEST))}"
    shares, marginals = tuning.importance(), tuning.marginals()
    if as_json:
        report = {
            "out": str(tuning.path),
            "best": dataclasses.asdict(best),
            "config": tuning.best_config.to_dict(),
            "command": command,
            "importance": shares,
            "marginals": marginals,
            "trials": [dataclasses.asdict(trial) for trial in tuning.trials],
        }
        print_json(report)
        return
    names = list(shares) or list(tuning.space)
    say(str(tuning))
    ranked = sorted(tuning.trials, key=lambda t: (t.state == "finished", t.mrr), reverse=True)
    rows = []
    for trial in ranked[:TOP]:
        settings = [short(trial.settings[name]) for name in names]
        state = "" if trial.state == "finished" else trial.state
        rows.append([str(trial.number), _mrr(trial), *settings, state])
    print_table(["trial", "valid MRR", *names, ""], rows)
    say("")
    rows = []
    for name in names:
        share = f"{100 * shares[name]:.0f}%" if shares else "–"
        for one in marginals[name]:
            figures = str(one["trials"]), f"{one['mean']:.4f}", f"{one['best']:.4f}"
            rows.append([name, share, one["value"], *figures])
            name = share = ""  # only in the first row of a hyperparameter
    if not shares:
        say("(shares need some more trials)")
    print_table(["importance", "share", "value", "trials", "mean MRR", "best MRR"], rows)
    say("", f"in {tuning.path}: {BEST}, {TRIALS}, {PLOT}", f"train with the best: {command}")


def _mrr(trial: Trial) -> str:
    return "–" if trial.state == "failed" else f"{trial.mrr:.4f}"
