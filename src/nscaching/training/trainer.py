"""The training loop: Algorithm 2 of the paper."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import Diverged, UserError, flag
from nscaching.evaluation.ranking import Queries, Ranks, metrics, rank
from nscaching.kernels import (
    AutogradLearner,
    KVsAll,
    Learner,
    Learning,
    choose_device,
    choose_kernels,
)
from nscaching.kernels.codes import FORMS
from nscaching.kernels.cpu.threads import torch_threads
from nscaching.kernels.state import State, join, part
from nscaching.models import build
from nscaching.probes import ProbeConfig
from nscaching.probes.probes import Finding, Probes
from nscaching.runs.folder import Record
from nscaching.samplers import SAMPLERS, Sampler
from nscaching.training.batches import TrainingTriples
from nscaching.training.divergence import diverged
from nscaching.training.meter import EpochMeter
from nscaching.training.objective import choose_objective, penalty

__all__ = ["Progress", "Trainer"]

Progress = Callable[[str, int, int], None]
"""Hears (what is going on, steps done, steps in all)."""

Part = TrainingTriples | EpochMeter | Sampler | Learner | Probes

# How far a training is, beside the states of its parts.
PLACE = ("trained", "judged", "best_epoch", "best_mrr", "without_gain", "seconds")


class Trainer:
    """Trains one model on one graph, keeping the parameters of the best validation MRR."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        start: dict[str, Tensor] | None = None,
        progress: Progress | None = None,
        probes: ProbeConfig | None = None,
    ) -> None:
        if not len(graph.train):
            raise UserError(f"{graph.name} has no training triples")
        torch.set_flush_denormal(True)  # numbers next to zero are a hundred times slower on CPUs
        if config.threads:
            torch.set_num_threads(config.threads)
        self.graph, self.config, self.device = graph, config, choose_device(config.device)
        self.model = build(config.model, graph, config.dim, config.norm)
        self.model.prepare(graph)
        self.model.reset(torch.Generator().manual_seed(_seed(config, 0)))
        if start is not None:
            self.model.load_state_dict(start)
        self.model.to(self.device)
        objective = choose_objective(config, self.model)
        self.kernels = choose_kernels(config.kernels, self.device)
        self.triples = TrainingTriples(graph, self.device, _seed(config, 1), self.kernels.gather)
        self.sampler = SAMPLERS.get(config.sampler)(
            graph, config, self.device, _seed(config, 2), self.kernels
        )
        self.progress = progress
        self.pause: Callable[[bool], None] | None = None
        """Called between steps, with True, and within rankings: where a checkpoint can be made."""
        self.sampler.fill(lambda done, of: self._report("filling the cache", done, of))
        # The penalty λ/2·‖Θ‖² belongs to the sum over all triples; a batch takes its share.
        share = min(1.0, config.batch_size / len(self.triples))
        strength, cubes = penalty(config, self.model), config.penalty_norm == "n3"
        learning = Learning(
            objective,
            config.margin,
            config.lr,
            weight_decay=0.0 if cubes else strength * share,
            rows=config.optimizer == "row-adam",
            adagrad=config.optimizer == "adagrad",
            cubes=strength if cubes else 0.0,
        )
        self.learner = self._new_learner(learning)
        self.probes = self.repeats = None
        if probes is not None and probes.on:
            parts = self.model, self.sampler, self.triples, self.kernels
            self.probes = Probes(probes, graph, config, *parts, _seed(config, 3))
            self.repeats = self.probes.repeats
        self.meter = EpochMeter(self.device, self.kernels.compile_seconds)
        # Without a form that kernels know, a refresh finds out how many keys there are.
        steady = self.learner.steady and (self.model.form in FORMS or not self.sampler.has_cache)
        self.step = self.kernels.capture(self._step, self.sampler.phase if steady else None)
        self.torch_threads = 1 if steady and self._all_compiled() else 0  # 0: as many as it has
        self.queries: dict[str, Queries] = {}  # of each split that was ranked
        self.ranks: dict[str, dict[Side, Ranks]] = {}  # and what came of it last
        self.best: dict[str, Tensor] = {}
        self.best_epoch, self.best_mrr, self.without_gain = 0, float("-inf"), 0
        self.trained, self.judged = 0, -1  # epochs; the start is looked at too
        self.seconds = 0.0  # spent in training, evaluation apart

    def _all_compiled(self) -> bool:
        """Say whether steps are loops on a CPU, whose cores torch's spinning threads would take."""
        in_torch = isinstance(self.learner, AutogradLearner) or self.sampler.in_torch
        return self.device.type == "cpu" and not in_torch

    def _new_learner(self, learning: Learning) -> Learner:
        if learning.objective == "kvsall":
            return KVsAll(self.model, learning, self.kernels.distances, self.graph)
        if learning.objective == "1vsall" or self.sampler.one_side:
            return self.kernels.learner(self.model, learning, self.sampler.count)
        return AutogradLearner(self.model, learning)

    def plan(self) -> str:
        """Say in one line which kernels run, and why."""
        parts = [f"{self.kernels.name} kernels ({self.kernels.reason})"]
        if self.kernels.name != "reference":
            if isinstance(self.learner, AutogradLearner):
                parts.append("gradients by autograd")
            if self.config.filter_known:
                parts.append("known triples are filtered on the plain path")
            elif self.model.form not in FORMS:
                parts.append(
                    f"{self.config.model} has no compiled form: candidates on the plain path"
                )
        return "; ".join(parts)

    def train(
        self,
        observe: Callable[[Record], None],
        find: Callable[[Finding], None] = lambda finding: None,
    ) -> None:
        """Run all epochs and rank the test triples with the parameters that were best.

        ``observe`` hears a record after each epoch and each ranking, ``find`` what probes found.
        """
        self.judge(observe, find)
        while not self.over:
            observe(self.epoch(self.trained + 1))
            self.judge(observe, find)
        if not self.validates:
            self.keep(self.trained)
        self.model.load_state_dict(self.best)
        self.learner.reload()
        if len(self.graph.test):
            observe(self.rank("test", self.best_epoch))

    @property
    def validates(self) -> bool:
        """Whether validation triples choose the parameters."""
        return self.config.validate_every > 0 and len(self.graph.valid) > 0

    @property
    def over(self) -> bool:
        """Whether no epoch is left, or no gain to be hoped for."""
        return self.trained == self.config.epochs or 0 < self.config.patience <= self.without_gain

    def epoch(self, epoch: int) -> Record:
        """Pass over the training triples once, or over those that are left of a pass."""
        self.meter.start_clock()
        if not self.meter.triples:
            self.sampler.begin_epoch(epoch)
        with torch_threads(self.torch_threads):
            for rows in self.triples.rows(self.config.batch_size, self.meter.triples):
                self.step(rows)
                self.meter.count(len(rows))
                self._report("training", self.meter.triples, len(self.triples))
        record = {"epoch": epoch, **self.meter.read(), **self.sampler.figures()}
        record["seconds"] = self.meter.clock()
        self.seconds += record["seconds"]
        self.trained, bad, steps = epoch, self.meter.first_bad_step(), self.meter.steps
        self.meter.reset()
        if bad:
            raise diverged(self.config, record["loss"], epoch, bad, steps)
        if not abs(record.get("generator_loss", 0.0)) < float("inf"):
            raise Diverged(
                f"the generator diverged in epoch {epoch}: try a lower {flag('generator_lr')}"
            )
        return record if self.probes is None else record | self.probes.figures(epoch)

    def _step(self, rows: Tensor) -> None:
        """Learn from the triples of some rows [B]."""
        batch = self.triples.batch(rows)
        negatives = self.sampler.sample(batch, self.model)  # Algorithm 2, steps 5 to 7
        if self.repeats is not None:
            self.repeats.record(rows, negatives)
        self.sampler.update(batch, self.model)  # step 8, Algorithm 3
        self.learner.step(batch, negatives, self.meter.sums)  # steps 9 and 10
        if self.repeats is not None:
            self.repeats.join()

    def judge(self, observe: Callable[[Record], None], find: Callable[[Finding], None]) -> None:
        """Rank what is due after an epoch and keep the parameters if they are the best so far.

        Rankings come first, changes after them: one that is broken off can be made again.
        """
        epoch, every = self.trained, self.config.validate_every
        if self.judged == epoch:
            return
        due = every > 0 and epoch > 0 and (epoch % every == 0 or epoch == self.config.epochs)
        valid = self.rank("valid", epoch) if due and self.validates else None
        traced = due and self.probes is not None and self.probes.trace_test
        test = {**self.rank("test", epoch), "traced": True} if traced else None
        if valid is not None:
            valid["best"] = valid["mrr"] > self.best_mrr
            self.without_gain += 1
            if valid["best"]:
                self.without_gain, self.best_mrr = 0, valid["mrr"]
                self.keep(epoch)
            observe(valid)
        if test is not None:
            observe(test)
        if self.probes is not None:
            find(self.probes.look(epoch, self.over))
        self.judged = epoch

    def rank(self, split: str, epoch: int) -> Record:
        """Rank a split with the parameters of now."""
        began = time.perf_counter()
        if split not in self.queries:
            triples = self.graph.split(split)
            self.queries[split] = Queries(self.graph, triples, device=self.device)
        ranks = rank(
            self.model,
            self.queries[split],
            progress=lambda done, of: self._report(split, done, of),
            kernels=self.kernels,
        )
        self.ranks[split] = ranks
        both = np.concatenate([ranks[side].resolve("realistic") for side in Side])
        figures = metrics(both)
        seconds = {"trained_seconds": self.seconds, "seconds": time.perf_counter() - began}
        return {"epoch": epoch, "split": split, **figures, **seconds}

    def _report(self, what: str, done: int, of: int) -> None:
        if self.progress is not None:
            self.progress(what, done, of)
        if self.pause is not None:
            self.pause(what == "training")

    def keep(self, epoch: int) -> None:
        """Remember the parameters of now as the best."""
        self.best_epoch = epoch
        self.best = {name: value.clone() for name, value in self.model.state_dict().items()}

    def checkpoint(self) -> State:
        """Return all that the rest of the training follows from."""
        return {name: getattr(self, name) for name in PLACE} | join(
            model=self.model.state_dict(),
            best=self.best,
            **{name: part.checkpoint() for name, part in self._parts().items()},
        )

    def restore(self, state: State) -> None:
        """Go on where a checkpoint was made."""
        for name in PLACE:
            setattr(self, name, state[name])
        self.model.load_state_dict(part(state, "model"))
        best = part(state, "best")
        self.best = {name: tensor.clone().to(self.device) for name, tensor in best.items()}
        self.meter.restore(part(state, "meter"))
        if self.meter.triples:
            self.sampler.begin_epoch(self.trained + 1)
        for name, one in self._parts().items():
            one.restore(part(state, name))

    def _parts(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"triples": self.triples, "meter": self.meter}
        parts |= {"sampler": self.sampler, "learner": self.learner}
        return parts if self.probes is None else {**parts, "probes": self.probes}


def _seed(config: TrainConfig, purpose: int) -> int:
    """Return a seed of its own for each random purpose of a run."""
    return 1000 * config.seed + purpose
