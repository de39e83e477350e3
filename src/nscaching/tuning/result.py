"""The result of a search: its trials, the best settings, and the importance of hyperparameters."""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import tomli_w
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from nscaching import __version__
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.files import write_text
from nscaching.training.defaults import settings_for
from nscaching.training.train import absolute_starts
from nscaching.tuning.plot import plot_tuning
from nscaching.tuning.space import Part, Space, short

BEST, TRIALS, PLOT = "best.toml", "trials.csv", "tuning.png"
FAILED = "failed"  # attribute of a failed trial in optuna's study: the reason
State = Literal["finished", "pruned", "failed"]

# With fewer trials, or fewer than two for each hyperparameter, importances are noise.
FEWEST = 8
PIECES = 4  # of a range


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

    config: TrainConfig  # the settings that were not tuned
    space: Space
    graph: KnowledgeGraph
    trials: list[Trial] = field(default_factory=list)
    path: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # settings that are not chosen

    def __str__(self) -> str:
        states = [trial.state for trial in self.trials]
        parts = [f"{states.count(s)} {s}" for s in get_args(State) if s in states]
        count = f"{len(states)} trials" if len(states) != 1 else "1 trial"
        title = f"{self.config.model} with {self.config.sampler} on {self.graph.name}"
        return f"{title}: {count}, {', '.join(parts)}"

    @property
    def finished(self) -> list[Trial]:
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
        """Return the settings of a trial: what goes with its point is chosen anew."""
        return absolute_starts(settings_for(self.graph, **{**self.given, **settings}))

    def importance(self) -> dict[str, float]:
        """Return the share of each hyperparameter in the variance of the MRR, largest first.

        The model of the MRR is a sum of effects, one function for each hyperparameter, fitted to
        all trials together by ridge regression. So a value with few trials weighs little, and
        values that were tried together are told apart. Optuna's evaluators do not serve here: the
        random forests need scikit-learn, and PED-ANOVA compares the best tenth of the trials with
        all trials, and a tenth of fifty is too few. Empty if there are too few trials.
        """
        mrr = np.array([trial.mrr for trial in self.trials])
        if len(mrr) < max(FEWEST, 2 * len(self.space)) or not np.ptp(mrr):
            return {}
        parts = [_membership(self._values(name), part) for name, part in self.space.items()]
        table = np.hstack(parts)  # [trials, values of all hyperparameters]
        ridge = table.T @ table + np.eye(table.shape[1])
        effects = np.linalg.solve(ridge, table.T @ (mrr - mrr.mean()))
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        variance = np.array([effect.var() for effect in np.split(effects, ends)])
        shares = dict(zip(self.space, (variance / variance.sum()).tolist(), strict=True))
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def marginals(self) -> dict[str, list[dict[str, Any]]]:
        """Return the trials, mean and best MRR of each tried value, or piece of a range."""
        mrr = np.array([trial.mrr for trial in self.trials])
        found: dict[str, list[dict[str, Any]]] = {}
        for name, part in self.space.items():
            values = self._values(name)
            if isinstance(part, CategoricalDistribution):
                labels = list(map(short, part.choices))
                group = np.array([part.choices.index(value) for value in values])
            else:
                scale = np.geomspace if part.log else np.linspace
                bounds = scale(part.low, part.high, PIECES + 1)
                labels = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(bounds)]
                group = np.searchsorted(bounds[1:-1], values, side="right")
            found[name] = [
                {"value": labels[i], "trials": len(of), "mean": of.mean(), "best": of.max()}
                for i in np.unique(group)
                for of in [mrr[group == i]]
            ]
        return found

    def _values(self, name: str) -> list[Any]:
        return [trial.settings[name] for trial in self.trials]

    def update(self, found: Sequence[FrozenTrial]) -> None:
        """Take optuna's trials over; write trials and best settings into the folder, if any."""
        self.trials = [trial_of(number, trial) for number, trial in enumerate(found, 1)]
        if self.path is None:
            return
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        figures = ("valid_mrr", "best_epoch", "epochs", "seconds", "reason")
        writer.writerow(["trial", "state", *self.space, *figures])
        for one in self.trials:
            settings = (one.settings[name] for name in self.space)
            reached = one.mrr, one.best_epoch, one.epochs, f"{one.seconds:.3f}", one.reason
            writer.writerow([one.number, one.state, *settings, *reached])
        write_text(self.path / TRIALS, out.getvalue())
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
        plot_tuning(self, path)


def default_out(graph: KnowledgeGraph, config: TrainConfig, space: str) -> Path:
    """Return the folder of a search that was given none: the same for the same search."""
    model, sampler = (name.rpartition(":")[2] for name in (config.model, config.sampler))
    return Path("tuning") / f"{graph.name}-{model}-{sampler}-{Path(space).stem}".lower()


def trial_of(number: int, trial: FrozenTrial) -> Trial:
    mrrs = trial.intermediate_values  # of each validation, by its epoch
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    if reason := trial.user_attrs.get(FAILED, "" if mrrs else "it was never validated"):
        return Trial(number, "failed", trial.params, 0.0, 0, max(mrrs, default=0), seconds, reason)
    best = max(mrrs, key=lambda epoch: (mrrs[epoch], -epoch))
    state: State = "finished" if trial.state == TrialState.COMPLETE else "pruned"
    return Trial(number, state, trial.params, mrrs[best], best, max(mrrs), seconds)


def _membership(values: Sequence[Any], part: Part) -> npt.NDArray[np.float64]:
    """Return how much each trial has of each value [trials, values]; in a range by nearness."""
    if isinstance(part, CategoricalDistribution):
        return np.array([[value == choice for choice in part.choices] for value in values], float)
    scale = np.log if part.log else np.asarray
    knots = np.linspace(scale(part.low), scale(part.high), PIECES)
    return np.stack([np.interp(scale(values), knots, knot) for knot in np.eye(PIECES)], axis=1)
