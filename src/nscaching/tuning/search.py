"""The search: trials one after the other, each a training run judged by validation MRR."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import TrialState

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, user_path
from nscaching.kernels.dispatch import choose_device
from nscaching.models import MODELS
from nscaching.runs.folder import Record, RunFolder
from nscaching.samplers import SAMPLERS
from nscaching.training.listener import Listener, Stage
from nscaching.training.objective import choose_objective
from nscaching.training.train import absolute_starts, train, with_settings
from nscaching.tuning import EPOCHS
from nscaching.tuning.result import FAILED, Tuning, trials_of
from nscaching.tuning.space import STARTS, as_toml, make_space, size
from nscaching.tuning.study import check_folder, ended, open_study

# A search may continue on another device: these settings do not identify the search.
PLACE = ("device", "kernels", "threads")


class Watch(Listener):
    """The callbacks of a search and of its training runs. Override the methods that you need."""

    def begin_search(self, tuning: Tuning, total: int) -> None:
        """Receive the earlier trials of the search, and the number of trials at its end."""

    def start(self, config: TrainConfig) -> None:
        """Receive the settings of a trial that starts."""

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
    ) -> None:
        if trials < 1:
            raise UserError(f"{flag('trials')} must be at least 1, not {trials}")
        self.trials = trials
        self.config = absolute_starts(with_settings(TrainConfig(epochs=EPOCHS), settings))
        SAMPLERS.get(self.config.sampler)
        choose_objective(self.config, MODELS.get(self.config.model))
        choose_device(self.config.device)
        if not self.config.validate_every:
            raise UserError(f"{flag('validate_every')} 0: a search is judged by validation")
        tuned = make_space(space, self.config, trust)
        self.space = {name: part for name, part in tuned.items() if name not in settings}
        if not self.space:
            raise UserError("nothing is left to tune: the settings fix all of the space")
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
        watch = watch or Watch()
        tuning = Tuning(self.config, self.space, graph, path=self.out)
        total = int(min(self.trials, math.prod(size(part) for part in self.space.values())))
        seen = graph.hide_test()
        with open_study(self.out, self.space, self.config, self._identity(graph)) as study:
            tuning.trials = trials_of(ended(study))
            tuning.write()
            watch.begin_search(tuning, total)
            while len(tuning.trials) < total:
                trial = study.ask(dict(self.space))
                try:
                    _run_trial(seen, study, trial, tuning, watch)
                except BaseException:  # such as Ctrl-C: the same point is trained again later
                    study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
                    raise
                tuning.trials = trials_of(ended(study))
                tuning.write()
                watch.end(tuning)
        return tuning

    def _identity(self, graph: KnowledgeGraph) -> dict[str, Any]:
        """Return what must be equal for a search to continue in its folder."""
        settings, left_out = self.config.to_dict(), {*self.space, *PLACE}
        return {
            "data": {"fingerprint": graph.fingerprint},
            "space": {name: as_toml(part) for name, part in self.space.items()},
            "settings": {name: settings[name] for name in settings if name not in left_out},
        }


def _run_trial(
    graph: KnowledgeGraph, study: optuna.Study, trial: optuna.Trial, tuning: Tuning, watch: Watch
) -> None:
    """Train once, and tell the study the result."""

    class Trial(Listener):
        def announce(self, text: str) -> None:
            watch.announce(text)

        def progress(self, stage: Stage, done: int, total: int) -> None:
            watch.progress(stage, done, total)

        def record(self, record: Record) -> None:
            watch.record(record)
            if record.get("split") == "valid":
                trial.report(record["mrr"], record["epoch"])
                if trial.should_prune() and record["epoch"] < config.epochs:
                    raise optuna.TrialPruned

    try:
        config = tuning.configure(trial.params)
        watch.start(config)
        run = train(graph, config, listener=Trial())
        best = run.result("valid")
        study.tell(trial, best["mrr"] if best else 0.0)
        return
    except optuna.TrialPruned:
        pass
    except UserError as error:  # divergence, lack of memory, or settings that exclude each other
        trial.set_user_attr(FAILED, " ".join(str(error).split()))
    study.tell(trial, state=TrialState.PRUNED)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
