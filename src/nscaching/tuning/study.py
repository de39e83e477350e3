"""Optuna's study of a search, and its journal on disk, which outlives a killed process."""

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from nscaching.config import TrainConfig
from nscaching.errors import UserError, flag
from nscaching.files import FolderLock, read_lines, regular_file, writing
from nscaching.tuning.space import Space, contains

JOURNAL = "study.journal"
NAME = "tuning"
SEARCH = "search"  # attribute of the study: data, space and settings of the search

# A trial is judged after some of its epochs (a low learning rate starts slowly), against the
# median of the finished trials at the same epoch, and only after some trials finished.
WARM_UP, FINISHED_FIRST = 0.3, 5
RANDOM_FIRST = 10  # points before TPE has something to learn from
REDRAWS = 8


def ended(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that were not interrupted.

    Optuna learns from pruned trials and ignores failed ones. So a trial that diverged is stored
    as pruned, with its reason as an attribute, and FAIL means interrupted.
    """
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


class FreshPoints(TPESampler):
    """TPE that tries no point twice.

    The random numbers depend on the seed and on the number of earlier trials alone. So an
    interrupted search continues with the points of an uninterrupted one.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(seed=seed)
        self.space, self.seed = space, seed

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return dict(self.space)  # all hyperparameters together

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a new point: from TPE, or a random one where TPE repeats itself."""
        tried = [before.params for before in ended(study)]
        seeds = np.random.SeedSequence([self.seed, len(tried)]).generate_state(REDRAWS).tolist()
        for draw, seed in enumerate(seeds):
            # First the most promising of 24 candidates, then any promising one.
            candidates = 1 if draw else 24
            tpe = TPESampler(seed=seed, n_startup_trials=RANDOM_FIRST, n_ei_candidates=candidates)
            point = tpe.sample_relative(study, trial, search_space)
            if point and point not in tried:  # empty with few trials
                return point
        random = RandomSampler(seed=seeds[0])
        while True:  # the search ends before the space is used up, so a new point exists
            point = {
                name: random.sample_independent(study, trial, name, part)
                for name, part in search_space.items()
            }
            if point not in tried:
                return point


def check_folder(path: Path) -> None:
    """Refuse a folder that holds something else than a search, or that cannot exist."""
    with writing(path):
        try:
            path.stat()
        except FileNotFoundError:
            return
        if (path / JOURNAL).is_file() or (path.is_dir() and not any(path.iterdir())):
            return
    raise UserError(f"{path} exists and holds no search; choose another {flag('out')}")


@contextmanager
def open_study(
    path: Path | None, space: Space, config: TrainConfig, search: dict[str, Any]
) -> Iterator[optuna.Study]:
    """Make the study of the folder, or load it if it is of the same search; no path: in memory.

    The folder is locked until the study is closed.
    """
    if path is None:
        yield _study(InMemoryStorage(), space, config)
        return
    check_folder(path)
    journal = path.resolve() / JOURNAL
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path)
    try:
        _repair(journal)
        # This process holds the folder. Optuna's own lock file would outlive a killed process.
        no_lock: Any = threading.Lock()
        study = _study(JournalStorage(JournalFileBackend(str(journal), no_lock)), space, config)
        if known := study.user_attrs.get(SEARCH):
            _check_same(path, known, search)
        else:
            study.set_user_attr(SEARCH, search)
        for trial in study.get_trials(deepcopy=False):
            _check_trial(journal, trial, space)
            if trial.state == TrialState.RUNNING:  # its process ended
                study.tell(trial.number, state=TrialState.FAIL)
        yield study
    finally:
        lock.release()


def _study(storage: BaseStorage, space: Space, config: TrainConfig) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if not storage.get_all_studies():
        optuna.create_study(study_name=NAME, storage=storage, direction="maximize")
    sampler = FreshPoints(space, config.seed)
    pruner = optuna.pruners.MedianPruner(FINISHED_FIRST, math.ceil(WARM_UP * config.epochs))
    return optuna.load_study(study_name=NAME, storage=storage, sampler=sampler, pruner=pruner)


def _repair(journal: Path) -> None:
    """Cut off an incomplete last line; refuse a file with lines that are not JSON objects."""
    with writing(journal), regular_file(journal).open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
    read_lines(journal, lambda line: isinstance(line, dict), "a journal")


def _check_trial(journal: Path, trial: FrozenTrial, space: Space) -> None:
    """Refuse a trial outside of the space: its settings, such as a model, might name code."""
    if trial.state == TrialState.WAITING:
        raise UserError(f"{journal}: trial {trial.number} waits, which no search leaves behind")
    for name, value in trial.params.items():
        if name not in space or not contains(space[name], value):
            what = f"trial {trial.number} has {name} {value!r}"
            raise UserError(f"{journal}: {what}, not of the space")


def _check_same(path: Path, known: dict[str, Any], search: dict[str, Any]) -> None:
    """Refuse to continue with other data, another space or other fixed settings."""
    search = json.loads(json.dumps(search))  # tuples become lists, as in the journal
    for part, new in search.items():
        old = known.get(part, {})
        differences = [
            f"{name} was {old.get(name, 'not in it')} and is {new.get(name, 'not in it')}"
            for name in {**old, **new}
            if old.get(name) != new.get(name)
        ]
        if differences:
            what = f"its {part}: {'; '.join(differences[:3])}"
            raise UserError(f"{path} holds another search, {what}; choose another {flag('out')}")
