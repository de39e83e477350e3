"""The search: trials, one or several at a time, each a training run judged by validation MRR.

Optuna's study of the search is kept in a journal on disk, which outlives a killed process.
"""

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, check_bounds, counted, flag, user_path
from nscaching.files import FolderLock, cut_last_line, read_lines, writing
from nscaching.kernels import choose_device
from nscaching.runs.folder import Record, RunFolder
from nscaching.training.defaults import recipe, settings_for
from nscaching.training.listener import Listener, Stage
from nscaching.training.processes import (
    Here,
    Process,
    Processes,
    ProcessLostError,
    how_many,
    pool,
)
from nscaching.training.train import absolute_starts, train
from nscaching.tuning.points import FreshPoints, ended
from nscaching.tuning.result import FAILED, Tuning
from nscaching.tuning.space import STARTS, as_toml, first, make_space, size

JOURNAL = "study.journal"
NAME = "tuning"
SEARCH = "search"  # attribute of the study: data, space and settings of the search

# A trial is judged after some of its epochs (a low learning rate starts slowly), against the
# median of the finished trials at the same epoch, and only after some trials finished.
WARM_UP, FINISHED_FIRST = 0.3, 5
# A search may continue on another device: these settings do not identify the search.
PLACE = ("device", "kernels", "threads")


class Watch(Listener):
    """The callbacks of a search and of its training runs. Override the methods that you need."""

    where = ""
    """The process of the trial that a callback is about, such as GPU 1; empty for this process."""

    def begin_search(self, tuning: Tuning, total: int) -> None:
        """Receive the earlier trials of the search, and the number of trials at its end."""

    def start(self, config: TrainConfig) -> None:
        """Receive the settings of a trial that starts."""

    def interrupted(self, reason: str) -> None:
        """Receive why the process of a trial ended before the trial."""
        self.note(reason)

    def end(self, tuning: Tuning) -> None:
        """Receive the result of a trial that ended: the last one of ``tuning.trials``."""


class Search:
    """A search that passed all checks that need no data: ``run`` searches on a graph."""

    def __init__(
        self,
        space: str | Path | Mapping[str, Any],
        settings: Mapping[str, Any],
        trials: int,
        out: str | Path | None,
        trust: bool = False,
        processes: int = 1,
    ) -> None:
        check_bounds("trials", trials, 1)
        self.trials = trials
        self.settings = settings
        self.config = absolute_starts(recipe(settings))
        choose_device(self.config.device)
        self.processes = how_many(processes, [self.config.device])
        if not self.config.validate_every:
            raise UserError(f"{flag('validate_every')} 0: a search is judged by validation")
        tuned = make_space(space, self.config, trust)
        self.space = {name: part for name, part in tuned.items() if name not in settings}
        if not self.space:
            raise UserError("nothing is left to tune: the settings fix all of the space")
        # A setting that is tuned decides about the others as one that is given, say a margin.
        self.first = {**{name: first(part) for name, part in self.space.items()}, **settings}
        self.config = absolute_starts(recipe(self.first))
        for name in STARTS:
            if path := self.config.flat()[name]:
                _, before = RunFolder(path).read_config(trust=True)  # only its dim is used
                if "dim" in self.space:
                    advice = f"give {flag('dim')} {before.dim}, so that it is not tuned"
                    raise UserError(f"{flag(name)} {path}: its dim is {before.dim}: {advice}")
        self.out = None if out is None else user_path(out)
        if self.out is not None:
            check_folder(self.out)

    def run(self, graph: KnowledgeGraph, watch: Watch | None = None) -> Tuning:
        """Run trials until there are as many as asked for, or the space is used up."""
        if not len(graph.valid):
            raise UserError(f"{graph.name} has no validation triples, which a search is judged by")
        self.config = absolute_starts(settings_for(graph, **self.first))
        watch = watch or Watch()
        tuning = Tuning(self.config, self.space, graph, path=self.out, given=self.settings)
        total = int(min(self.trials, math.prod(size(part) for part in self.space.values())))
        seen = graph.hide_test()
        with self._study(graph) as study:
            tuning.update(ended(study))
            watch.begin_search(tuning, total)
            count = max(1, min(self.processes, total - len(tuning.trials)))
            with pool(count, [self.config.device], watch.note, _validate, seen) as running:
                _Trials(study, tuning, watch, running).run(total)
        return tuning

    @contextmanager
    def _study(self, graph: KnowledgeGraph) -> Iterator[optuna.Study]:
        """Make the study of the folder, or load it if it is of the same search; else in memory.

        The folder is locked until the study is closed.
        """
        if (path := self.out) is None:
            yield self._load(InMemoryStorage())
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
            study = self._load(JournalStorage(JournalFileBackend(str(journal), no_lock)))
            # What must be equal for a search to continue in its folder.
            settings, left_out = self.config.to_dict(), {*self.space, *PLACE}
            search = {
                "data": {"fingerprint": graph.fingerprint},
                "space": {name: as_toml(part) for name, part in self.space.items()},
                "settings": {name: settings[name] for name in settings if name not in left_out},
            }
            if SEARCH not in study.user_attrs:
                study.set_user_attr(SEARCH, search)
            _check_same(path, study.user_attrs[SEARCH], search)
            for trial in study.get_trials(deepcopy=False):
                # The settings of a stranger's trial, such as a model, might name code.
                foreign = not trial.distributions.items() <= self.space.items()
                if foreign or trial.state == TrialState.WAITING:
                    raise UserError(f"{journal}: trial {trial.number} is not of this search")
                if trial.state == TrialState.RUNNING:  # its process ended
                    study.tell(trial.number, state=TrialState.FAIL)
            yield study
        finally:
            lock.release()

    def _load(self, storage: BaseStorage) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if not storage.get_all_studies():
            optuna.create_study(study_name=NAME, storage=storage, direction="maximize")
        sampler, late = FreshPoints(self.space, self.config.seed), WARM_UP * self.config.epochs
        pruner = optuna.pruners.MedianPruner(FINISHED_FIRST, math.ceil(late))
        return optuna.load_study(study_name=NAME, storage=storage, sampler=sampler, pruner=pruner)


def _validate(graph: KnowledgeGraph, config: TrainConfig, listener: Listener) -> float:
    best = train(graph, config, listener=listener).result("valid")
    return float(best["mrr"]) if best else 0.0


class _TrialListener(Listener):
    """Tells the watch and the study of a trial; ends a hopeless one."""

    def __init__(self, trial: optuna.Trial, watch: Watch, where: str) -> None:
        self.trial, self.where, self.epochs = trial, where, 0
        self._watch = watch

    @property
    def watch(self) -> Watch:
        self._watch.where = self.where
        return self._watch

    def start(self, config: TrainConfig) -> None:
        self.epochs = config.epochs
        self.watch.start(config)

    def announce(self, text: str) -> None:
        self.watch.announce(text)

    def progress(self, stage: Stage, done: int, total: int) -> None:
        self.watch.progress(stage, done, total)

    def record(self, record: Record) -> None:
        self.watch.record(record)
        if record.get("split") == "valid":
            self.trial.report(record["mrr"], record["epoch"])
            if self.trial.should_prune() and record["epoch"] < self.epochs:
                raise optuna.TrialPruned


class _Trials:
    """The trials of a search on their way. Nothing else writes to the study."""

    def __init__(
        self, study: optuna.Study, tuning: Tuning, watch: Watch, running: Here | Processes
    ) -> None:
        self.study, self.tuning, self.watch, self.running = study, tuning, watch, running
        assert isinstance(study.sampler, FreshPoints)
        self.interrupted = study.sampler.interrupted

    def run(self, total: int) -> None:
        while True:
            begun = len(self.tuning.trials) + len(self.interrupted) + self.running.busy
            if begun < total and (process := self.running.free()):
                self._begin(process)
            elif begun < total or self.running.busy:
                self._serve()
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()
            else:
                break
        if self.interrupted:
            lost = counted(len(self.interrupted), "trial")
            self.watch.note(f"{lost} interrupted; the same search again tries as many others")

    def _begin(self, process: Here | Process) -> None:
        # A trial that Ctrl-C or a bug ends stays open: its point is trained again later.
        listener = _TrialListener(
            self.study.ask(dict(self.tuning.space)), self.watch, process.where
        )
        try:
            config = self.tuning.configure(listener.trial.params)
        except UserError as error:  # settings that exclude each other
            self._end(listener, error)
            return
        listener.start(config)
        process.begin(listener, listener, config)

    def _serve(self) -> None:
        for listener, future in self.running.wait():
            self._end(listener, future.exception() or future.result())

    def _end(self, listener: _TrialListener, outcome: float | BaseException) -> None:
        trial = listener.trial
        match outcome:
            case float():
                self.study.tell(trial, outcome)
            case ProcessLostError():
                self.study.tell(trial, state=TrialState.FAIL)
                self.interrupted.append(trial.params)
                listener.watch.interrupted(str(outcome))
                return
            case UserError():  # divergence, or lack of memory
                trial.set_user_attr(FAILED, " ".join(str(outcome).split()))
                self.study.tell(trial, state=TrialState.PRUNED)
            case optuna.TrialPruned():
                self.study.tell(trial, state=TrialState.PRUNED)
            case _:
                raise outcome
        self.tuning.update(ended(self.study))
        listener.watch.end(self.tuning)


def check_folder(path: Path) -> None:
    """Refuse a folder that holds something else than a search, or that cannot exist."""
    with writing(path), suppress(FileNotFoundError):
        path.stat()
        if not (path / JOURNAL).is_file() and not (path.is_dir() and not any(path.iterdir())):
            raise UserError(f"{path} exists and holds no search; choose another {flag('out')}")


def _repair(journal: Path) -> None:
    """Cut off an incomplete last line; refuse a file with lines that are not JSON objects."""
    cut_last_line(journal)
    read_lines(journal, lambda line: isinstance(line, dict), "a journal")


def _check_same(path: Path, known: dict[str, Any], search: dict[str, Any]) -> None:
    search = json.loads(json.dumps(search))  # tuples become lists, as in the journal
    for part, new in search.items():
        old = known.get(part, {})
        for name in {**old, **new}:
            was, now = (values.get(name, "not in it") for values in (old, new))
            if was != now:
                what = f"another search, its {part}: {name} was {was} and is {now}"
                raise UserError(f"{path} holds {what}; choose another {flag('out')}")
