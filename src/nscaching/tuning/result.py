"""The result of a search: its trials, the best settings, and the importance of hyperparameters."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import tomli_w
from optuna.trial import FrozenTrial, TrialState

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.files import write_text
from nscaching.tuning.importance import Marginal, importance, marginals
from nscaching.tuning.space import Space

BEST, TRIALS, PLOT = "best.toml", "trials.csv", "tuning.png"
FAILED = "failed"
"""Attribute of a failed trial in optuna's study: the reason."""
State = Literal["finished", "pruned", "failed"]


@dataclass(frozen=True)
class Trial:
    """One point of the space that was tried."""

    number: int  # from one
    state: State
    settings: dict[str, Any]
    mrr: float  # the best of its validations; zero where it failed
    best_epoch: int
    epochs: int  # of the last validation
    seconds: float
    reason: str = ""  # why it failed


@dataclass
class Tuning:
    """What ``tune`` returns."""

    config: TrainConfig
    """The settings that were not tuned."""
    space: Space
    graph: KnowledgeGraph
    trials: list[Trial] = field(default_factory=list)
    path: Path | None = None

    def __str__(self) -> str:
        states = [trial.state for trial in self.trials]
        parts = [f"{states.count(s)} {s}" for s in get_args(State) if s in states]
        count = f"{len(states)} trials" if len(states) != 1 else "1 trial"
        title = f"{self.config.model} with {self.config.sampler} on {self.graph.name}"
        return f"{title}: {count}, {', '.join(parts)}"

    @property
    def finished(self) -> list[Trial]:
        """The trials that were trained to the end."""
        return [trial for trial in self.trials if trial.state == "finished"]

    @property
    def best(self) -> Trial:
        """The trial with the highest validation MRR."""
        if not self.finished:
            reasons = [trial.reason for trial in self.trials if trial.reason]
            last = f"; the last: {reasons[-1]}" if reasons else ""
            raise UserError(f"none of {len(self.trials)} trials finished{last}")
        return max(self.finished, key=lambda trial: trial.mrr)

    @property
    def best_config(self) -> TrainConfig:
        """The settings of the best trial: ``train(graph, tuning.best_config)``."""
        return self.configure(self.best.settings)

    def configure(self, settings: dict[str, Any]) -> TrainConfig:
        """Return the configuration of a point of the space."""
        return TrainConfig.from_dict({**self.config.to_dict(), **settings})

    def importance(self) -> dict[str, float]:
        """Return the share of each hyperparameter in the variance of the MRR; empty: too few."""
        return importance(self.trials, self.space)

    def marginals(self) -> dict[str, list[Marginal]]:
        """Return mean and best MRR of the trials at each value of each hyperparameter."""
        return marginals(self.trials, self.space)

    def write(self) -> None:
        """Write the trials and the best settings into the folder of the search, if it has one."""
        if self.path is None:
            return
        write_text(self.path / TRIALS, _csv(self.trials, list(self.space)))
        if self.finished:
            values = dataclasses.asdict(self.graph.source) | self.best_config.to_dict()
            values["record"] = {
                "nscaching": __version__,
                "data_fingerprint": self.graph.fingerprint,
                "trials": len(self.trials),
                "valid_mrr": self.best.mrr,
            }
            write_text(self.path / BEST, tomli_w.dumps(values))

    def plot(self, path: Path) -> None:
        """Draw importances, the course of the search, and MRR against each hyperparameter."""
        from nscaching.tuning.plot import plot_tuning

        plot_tuning(self, path)


def default_out(graph: KnowledgeGraph, config: TrainConfig, space: str) -> Path:
    """Return the folder of a search that was given none: the same for the same search."""
    model, sampler = (name.rpartition(":")[2] for name in (config.model, config.sampler))
    return Path("tuning") / f"{graph.name}-{model}-{sampler}-{Path(space).stem}".lower()


def trials_of(found: Sequence[FrozenTrial]) -> list[Trial]:
    """Return optuna's trials as ours, numbered from one."""
    return [_trial(number, trial) for number, trial in enumerate(found, 1)]


def _trial(number: int, trial: FrozenTrial) -> Trial:
    mrrs = trial.intermediate_values  # of each validation, by its epoch
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    if reason := trial.user_attrs.get(FAILED, "" if mrrs else "it was never validated"):
        return Trial(number, "failed", trial.params, 0.0, 0, max(mrrs, default=0), seconds, reason)
    best = max(mrrs, key=lambda epoch: (mrrs[epoch], -epoch))
    state: State = "finished" if trial.state == TrialState.COMPLETE else "pruned"
    return Trial(number, state, trial.params, mrrs[best], best, max(mrrs), seconds)


def _csv(trials: Sequence[Trial], names: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ("valid_mrr", "best_epoch", "epochs", "seconds", "reason")
    writer.writerow(["trial", "state", *names, *figures])
    for trial in trials:
        found = trial.mrr, trial.best_epoch, trial.epochs, f"{trial.seconds:.3f}", trial.reason
        settings = (trial.settings[name] for name in names)
        writer.writerow([trial.number, trial.state, *settings, *found])
    return out.getvalue()
