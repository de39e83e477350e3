"""The search: trials one after the other, each a training that is judged by validation MRR."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nscaching.config import TrainConfig, flag
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, user_path
from nscaching.evaluation.chunks import is_shortage
from nscaching.kernels.dispatch import choose_device
from nscaching.models import MODELS
from nscaching.runs.folder import Record, RunFolder
from nscaching.samplers import SAMPLERS
from nscaching.training.objective import choose_objective
from nscaching.training.train import train
from nscaching.tuning.space import Space, make_space

if TYPE_CHECKING:
    import optuna

    from nscaching.tuning.result import Tuning

__all__ = ["EPOCHS", "Watch", "check_optuna", "check_search", "tune"]

EPOCHS = 100
"""Of a trial, unless told otherwise."""

# Where a trial runs may change while a search goes on.
PLACE = ("device", "kernels", "threads")


class Watch:
    """Hears how a search goes; this one keeps it to itself."""

    def begin(self, tuning: Tuning, total: int) -> None:
        """Hear which trials there are already, and how many there will be."""

    def start(self, config: TrainConfig, settings: dict[str, Any]) -> None:
        """Hear that a trial starts."""

    def announce(self, plan: str) -> None:
        """Hear which kernels run."""

    def observe(self, record: Record) -> None:
        """Hear a finished epoch or validation."""

    def progress(self, what: str, done: int, of: int) -> None:
        """Hear a step inside an epoch or a validation."""

    def end(self, tuning: Tuning) -> None:
        """Hear that a trial ended, the last of the search so far."""


def check_optuna() -> None:
    """Ask for optuna, which is an extra."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError('tune needs optuna: pip install "nscaching[tune]"') from None


def check_search(
    space: str | Path | Mapping[str, Any],
    settings: Mapping[str, Any],
    trials: int,
    trust: bool = False,
) -> tuple[TrainConfig, Space]:
    """Return what is fixed and what is tuned; find what can be found wrong without the data."""
    check_optuna()
    if trials < 1:
        raise UserError(f"{flag('trials')} must be at least 1, not {trials}")
    config = TrainConfig.from_dict({"epochs": EPOCHS, **settings})
    config = dataclasses.replace(
        config,
        model=MODELS.canonical(config.model),
        sampler=SAMPLERS.canonical(config.sampler),
        generator=MODELS.canonical(config.generator),
        pretrain=_absolute(config.pretrain),
        generator_pretrain=_absolute(config.generator_pretrain),
    )
    SAMPLERS.get(config.sampler)
    choose_objective(config, MODELS.get(config.model))
    choose_device(config.device)
    if not config.validate_every:
        raise UserError(f"{flag('validate_every')} 0: a search is judged by validation")
    tuned = make_space(space, config, trust)
    tuned = {name: part for name, part in tuned.items() if name not in settings}
    if not tuned:
        raise UserError("nothing is left to tune: the settings fix all of the space")
    for name in ("pretrain", "generator_pretrain"):
        if path := getattr(config, name):
            _, before = RunFolder(path).read_config(trust=True)  # only its dim is looked at
            if "dim" in tuned:
                what = f"{flag(name)} {path}: its dim is {before.dim}"
                raise UserError(f"{what}: give {flag('dim')} {before.dim}, so that it is not tuned")
    return config, tuned


def tune(
    graph: KnowledgeGraph,
    space: str | Path | Mapping[str, Any] = "paper",
    trials: int = 50,
    *,
    out: str | Path | None = None,
    trust: bool = False,
    watch: Watch | None = None,
    **settings: Any,  # noqa: ANN401  (fields of TrainConfig)
) -> Tuning:
    """Search for the settings with the best validation MRR.

    ``space`` is "paper", "wide", a TOML file, or a table such as ``{"lr": [0.001, 0.01],
    "margin": {"low": 1.0, "high": 12.0}}``. ``settings`` are fields of ``TrainConfig`` that stay
    fixed. With ``out`` the search is kept in that folder, and goes on there when it is asked for
    again: ``trials`` counts those of before too. ``trust`` allows a TOML file to name code from
    outside the package.
    """
    config, tuned = check_search(space, settings, trials, trust)
    if not len(graph.valid):
        raise UserError(f"{graph.name} has no validation triples, which a search is judged by")
    from nscaching.tuning.result import Tuning
    from nscaching.tuning.study import StudyFolder, new_study

    tuning = Tuning(config, tuned, graph.name, graph.source, graph.fingerprint)
    watch, seen = watch or Watch(), _without_test(graph)
    if out is None:
        _search(seen, new_study(tuned, config.seed, config.epochs), tuning, trials, watch)
        return tuning
    fixed = {
        name: value for name, value in config.to_dict().items() if name not in {*tuned, *PLACE}
    }
    search = {
        "data": {"fingerprint": graph.fingerprint},
        "space": {name: part.plain() for name, part in tuned.items()},
        "settings": fixed,
    }
    tuning.path = user_path(out)
    with StudyFolder(tuning.path) as folder:
        study = folder.open(tuned, config.seed, config.epochs, search)
        _search(seen, study, tuning, trials, watch)
    return tuning


def _search(
    graph: KnowledgeGraph, study: optuna.Study, tuning: Tuning, trials: int, watch: Watch
) -> None:
    """Run trials until there are as many as asked for, or the space is used up."""
    from optuna.trial import TrialState

    from nscaching.tuning.result import trials_of
    from nscaching.tuning.study import counted

    points = math.prod(part.size() for part in tuning.space.values())
    total = int(min(trials, points))
    distributions = {name: part.distribution() for name, part in tuning.space.items()}
    tuning.trials = trials_of(counted(study))
    tuning.write()
    watch.begin(tuning, total)
    while len(tuning.trials) < total:
        trial = study.ask(distributions)
        try:
            _run(graph, study, trial, tuning, watch)
        except BaseException:  # such as Ctrl-C: it will be run again
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            raise
        tuning.trials = trials_of(counted(study))
        tuning.write()
        watch.end(tuning)


def _run(
    graph: KnowledgeGraph, study: optuna.Study, trial: optuna.Trial, tuning: Tuning, watch: Watch
) -> None:
    """Train once, and tell the study how it went."""
    import optuna

    from nscaching.tuning.study import FAILED

    def observe(record: Record) -> None:
        watch.observe(record)
        if record.get("split") == "valid":
            trial.report(record["mrr"], record["epoch"])
            if trial.should_prune() and record["epoch"] < config.epochs:
                raise optuna.TrialPruned

    reason = ""
    try:
        config = tuning.configure(trial.params)
        watch.start(config, trial.params)
        run = train(
            graph, config, observe=observe, progress=watch.progress, announce=watch.announce
        )
        best = run.result("valid")
        study.tell(trial, best["mrr"] if best else 0.0)
        return
    except optuna.TrialPruned:
        pass
    except UserError as error:  # it diverged, or the settings exclude each other
        reason = str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        reason = f"not enough memory: {error}"
    if reason:
        trial.set_user_attr(FAILED, " ".join(reason.split()))
    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _absolute(path: str) -> str:
    return str(user_path(path).resolve()) if path else ""


def _without_test(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Return the graph with test triples that are known to the filter, but never ranked."""
    seen = dataclasses.replace(graph, test=graph.test[:0])
    vars(seen)["filter_index"] = graph.filter_index
    return seen
