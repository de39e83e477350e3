"""The study in its folder: it survives any end of the process, and goes on where it was."""

from __future__ import annotations

import fcntl
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from nscaching.errors import UserError, flag
from nscaching.tuning.space import Space

__all__ = ["FAILED", "JOURNAL", "StudyFolder", "counted", "new_study"]

JOURNAL = "study.journal"
NAME = "tuning"
SEARCH = "search"
FAILED = "failed"
"""Attribute of a trial that diverged: why."""

# A trial is judged after some of its epochs (a low learning rate starts slowly), against the
# median of the finished ones at the same epoch, and only once there are some.
WARM_UP, FINISHED_FIRST = 0.3, 5
RANDOM_FIRST = 10  # points before the sampler has something to learn from
REDRAWS = 8


def counted(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that came to an end; one that was interrupted is run again.

    Optuna learns from pruned trials and takes no notice of failed ones, so one that diverged
    is told as pruned, with its reason as an attribute, and FAIL is an interrupted one.
    """
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


class Sampler(BaseSampler):
    """TPE that tries no point twice.

    Its randomness is a function of the seed and of the number of trials before, so that an
    interrupted search goes on as if it had not been.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self.distributions = {name: part.distribution() for name, part in space.items()}
        self.seed = seed

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Choose all hyperparameters together."""
        return self.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a new point: TPE's, or a random one where TPE has none to offer."""
        before = counted(study)
        tried = [done.params for done in before]
        seeds = np.random.SeedSequence([self.seed, len(before)]).generate_state(REDRAWS)
        if len(before) >= RANDOM_FIRST:
            for draw, seed in enumerate(seeds.tolist()):
                # First the most promising of many; after that any that is promising.
                best_of = 1 if draw else 24
                tpe = TPESampler(seed=seed, n_startup_trials=RANDOM_FIRST, n_ei_candidates=best_of)
                point = tpe.sample_relative(study, trial, search_space)
                if point and point not in tried:
                    return point
        random = RandomSampler(seed=int(seeds[0]))
        while True:  # the search ends before the space does
            point = {
                name: random.sample_independent(study, trial, name, distribution)
                for name, distribution in search_space.items()
            }
            if point not in tried:
                return point

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:  # noqa: ANN401
        """Never happens: all are chosen together."""
        raise NotImplementedError(param_name)


def new_study(
    space: Space, seed: int, epochs: int, storage: JournalStorage | None = None
) -> optuna.Study:
    """Make the study, or open that of the storage."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.MedianPruner(
        n_startup_trials=FINISHED_FIRST, n_warmup_steps=math.ceil(WARM_UP * epochs)
    )
    parts = {"study_name": NAME, "sampler": Sampler(space, seed), "pruner": pruner}
    if storage is not None and storage.get_all_studies():
        return optuna.load_study(storage=storage, **parts)  # type: ignore[arg-type]
    return optuna.create_study(storage=storage, direction="maximize", **parts)  # type: ignore[arg-type]


class StudyFolder:
    """The folder of a search, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def check(self) -> None:
        """Refuse a folder that holds something else, or that cannot be."""
        with _writing(self.path):
            try:
                self.path.stat()
            except FileNotFoundError:  # it will be made
                return
            if not (self.path / JOURNAL).is_file() and not self._is_empty():
                raise UserError(
                    f"{self.path} exists and holds no search; choose another {flag('out')}"
                )

    def _is_empty(self) -> bool:
        return self.path.is_dir() and not any(self.path.iterdir())

    def open(self, space: Space, seed: int, epochs: int, search: dict[str, Any]) -> optuna.Study:
        """Make the study or go on with it, if it is the same search."""
        self.check()
        with _writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            journal = self.path.resolve() / JOURNAL
            self._file = journal.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{self.path}: another process is searching there") from None
        _repair(journal, self._file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = JournalStorage(JournalFileBackend(str(journal), _NoLock(str(journal))))
        study = new_study(space, seed, epochs, storage)
        known = study.user_attrs.get(SEARCH)
        if known is None:
            study.set_user_attr(SEARCH, search)
        else:
            _check_same(self.path, known, search)
        for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(left.number, state=TrialState.FAIL)  # its process ended
        return study

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let others have it; the end of the process does the same."""
        if self._file is not None:
            self._file.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name the flag where the system has something against its folder."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{flag('out')} {path}: cannot write there: {error.strerror}") from error


class _NoLock(JournalFileOpenLock):
    """The folder is ours already; optuna's own lock would outlive a killed process."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _repair(journal: Path, file: IO[bytes]) -> None:
    """Cut off a last line that was not written whole; refuse what is no journal."""
    file.seek(0)
    whole = 0
    for number, line in enumerate(file, 1):
        if not line.endswith(b"\n"):
            break
        try:
            json.loads(line)
        except ValueError as error:
            raise UserError(f"{journal}:{number}: cannot read it: {error}") from None
        whole += len(line)
    file.truncate(whole)


def _check_same(path: Path, known: dict[str, Any], search: dict[str, Any]) -> None:
    """Refuse to go on with other data, another space or other fixed settings."""
    search = json.loads(json.dumps(search))  # as the journal gives it back
    for part in search:
        old, new = known.get(part), search[part]
        if old == new:
            continue
        what = f"its {part} was {old} and is {new}"
        if isinstance(old, dict) and isinstance(new, dict):
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            differences = [
                f"{name} was {old.get(name, 'not in it')} and is {new.get(name, 'not in it')}"
                for name in names[:3]
            ]
            what = f"its {part}: {'; '.join(differences)}"
        raise UserError(f"{path} holds another search, {what}; choose another {flag('out')}")
