"""The training loop: Algorithm 2 of the paper."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.evaluation.ranking import BUDGET, Queries, rank
from nscaching.evaluation.ranks import Ranks, metrics
from nscaching.evaluation.sampled import is_whole, rank_sampled
from nscaching.kernels import (
    AutogradLearner,
    KVsAll,
    Learning,
    Negatives,
    choose_device,
    choose_kernels,
)
from nscaching.kernels.codes import FORMS
from nscaching.kernels.cpu.threads import torch_threads
from nscaching.kernels.learner import Learner
from nscaching.kernels.state import State, join, part
from nscaching.models import MODELS, Model, build
from nscaching.probes import ProbeConfig
from nscaching.probes.probes import Finding, Probes
from nscaching.runs.folder import Record
from nscaching.samplers import SAMPLERS, Sampler
from nscaching.samplers.objective import choose_objective, penalty
from nscaching.training.best import Best
from nscaching.training.epoch import EpochMeter, TrainingTriples
from nscaching.training.listener import Stage

Parameters = dict[str, Tensor]
Starts = tuple[Parameters | None, Parameters | None]  # of model and generator; None: random

# What a checkpoint holds: how far a training run is, and the states of its parts.
PLACE = ("trained", "judged", "best_epoch", "best_mrr", "without_gain", "seconds")
PARTS = ("meter", "sampler", "learner", "probes")


class Trainer:
    """Trains one model on one graph, keeping the parameters of the best validation MRR."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        starts: Starts = (None, None),
        report: Callable[[Stage, int, int], None] = lambda stage, done, total: None,
        probes: ProbeConfig | None = None,
        folder: Path | None = None,
    ) -> None:
        """Report (stage, steps done, steps in all) after every step and within rankings.

        A cache on the disk has its file in ``folder``.
        """
        if not len(graph.train):
            raise UserError(f"{graph.name} has no training triples")
        self.graph, self.config, self.report, self.folder = graph, config, report, folder
        self.device = choose_device(config.device)
        self.kernels = choose_kernels(config.kernels, self.device)
        # Each random purpose has its own seed.
        start, order, negatives, probing = range(1000 * config.seed, 1000 * config.seed + 4)
        self.model = self._new_model(starts[0], start)
        self.objective = choose_objective(config, self.model)
        self.triples = TrainingTriples(graph, self.device, order, self.kernels)
        self.sampler = self._new_sampler(starts[1], negatives)
        self.learner = self._new_learner()
        margin = config.margin if self.objective == "margin" else None
        parts = self.model, self.sampler, self.triples.columns[1]
        self.probes = Probes(probes or ProbeConfig(), graph, *parts, margin, probing)
        self.meter = EpochMeter(self.device, self.kernels.compile_seconds)
        # For forms that kernels do not know, the number of keys decides what a refresh does; where
        # known triples are left out, the draws do.
        same = self.model.form in FORMS or not self.sampler.has_cache
        steady = self.learner.steady and same and not config.filter_known
        self.step = self.kernels.capture(self._step, self.sampler.phase if steady else None)
        in_torch = isinstance(self.learner, AutogradLearner) or self.sampler.in_torch
        # Idle torch threads would take the cores of a CPU from compiled loops.
        alone = steady and self.device.type == "cpu" and not in_torch
        self.torch_threads = 1 if alone else 0  # 0: as many as torch has
        self.queries: dict[str, Queries] = {}  # of each ranked split
        self.ranks: dict[str, dict[Side, Ranks]] = {}  # the latest of each ranked split
        self.validates = config.validate_every > 0 and len(graph.valid) > 0
        self.best = Best(self.model)  # chosen by the validation triples, if any
        self.best_epoch, self.best_mrr, self.without_gain = 0, float("-inf"), 0
        self.trained, self.judged = 0, -1  # epochs; the start is judged too
        self.seconds = 0.0  # of training, without evaluation

    def train(self) -> Iterator[Record | Finding]:
        """Run all epochs, then rank the test triples with the best parameters.

        Yields the record of every epoch and of every ranking, and the findings of probes.
        """
        yield from self.judge()
        while not self.over:
            yield self.epoch(self.trained + 1)
            yield from self.judge()
        yield from self.end()

    def end(self) -> Iterator[Record]:
        """Take the best parameters, and rank the test triples with them."""
        if not self.best.kept:
            self.best_epoch = self.trained
        elif self.best_epoch != self.trained or self.meter.triples:
            self.best.take()
            self.learner.reload()
        if len(self.graph.test):
            yield self.rank("test", self.best_epoch)

    @property
    def over(self) -> bool:
        return self.trained == self.config.epochs or 0 < self.config.patience <= self.without_gain

    def epoch(self, epoch: int) -> Record:
        """Pass over the training triples once, or over the rest of an interrupted pass."""
        self.meter.start_clock()
        if not self.meter.triples:
            self.sampler.begin_epoch(epoch)
        with torch_threads(self.torch_threads):
            for size in self.triples.sizes(self.config.batch_size, self.meter.triples):
                self.step(size)
                self.meter.count(size)
                self.report(Stage.TRAINING, self.meter.triples, len(self.triples))
        record = {"epoch": epoch, **self.meter.read(), **self.sampler.figures()}
        record["seconds"] = self.meter.clock()
        self.seconds += record["seconds"]
        self.trained = epoch
        self.meter.check_finite(self.config, record)
        self.meter.reset()
        return record | self.probes.figures(epoch)

    def _step(self, size: int) -> None:
        rows, batch = self.triples.take(size)
        negatives = self.sampler.sample(batch, self.model)  # Algorithm 2, steps 5 to 7
        if isinstance(negatives, Negatives):
            self.probes.record(rows, negatives)
        self.sampler.update(batch, self.model)  # step 8, Algorithm 3
        self.learner.step(batch, negatives, self.meter.sums)  # steps 9 and 10
        self.sampler.settle()
        self.probes.join()

    def judge(self) -> Iterator[Record | Finding]:
        """Make the rankings that are due after an epoch; keep the parameters if they are the best.

        Rankings come before all changes: an interrupted ranking can be made again.
        """
        epoch, every = self.trained, self.config.validate_every
        if self.judged == epoch:
            return
        due = every > 0 and epoch > 0 and (epoch % every == 0 or epoch == self.config.epochs)
        valid = self.rank("valid", epoch) if due and self.validates else None
        traced = due and self.probes.asked.probe_test
        test = {**self.rank("test", epoch), "traced": True} if traced else None
        if valid is not None:
            valid["best"] = valid["mrr"] > self.best_mrr
            self.without_gain += 1
            if valid["best"]:
                self.without_gain, self.best_mrr = 0, valid["mrr"]
                self.keep(epoch)
        yield from filter(None, (valid, test))
        yield self.probes.look(epoch, self.over)
        self.judged = epoch

    def rank(self, split: str, epoch: int) -> Record:
        began = time.perf_counter()
        sampled: dict[str, Any] = {}
        candidates = self.config.validate_candidates if split == "valid" else 0
        if not is_whole(candidates, self.model.entities):
            sampled = {"candidates": candidates, "seed": self.config.seed}
        ranks = self.ranks[split] = self._ranks(split, sampled)
        figures = metrics(np.concatenate([ranks[side].resolve("realistic") for side in Side]))
        seconds = {"trained_seconds": self.seconds, "seconds": time.perf_counter() - began}
        return {"epoch": epoch, "split": split, **sampled, **figures, **seconds}

    def _ranks(self, split: str, sampled: dict[str, Any]) -> dict[Side, Ranks]:
        if split not in self.queries:
            triples = self.graph.split(split)
            self.queries[split] = Queries(self.graph, triples, device=self.device)
        given: dict[str, Any] = {"kernels": self.kernels}
        given["progress"] = partial(self.report, Stage(split))
        if sampled:
            given |= sampled | {"budget": BUDGET}
            return rank_sampled(self.model, self.queries[split], **given)
        return rank(self.model, self.queries[split], **given)

    def keep(self, epoch: int) -> None:
        self.best_epoch = epoch
        self.best.keep(epoch)

    def checkpoint(self) -> State:
        return {name: getattr(self, name) for name in PLACE} | join(
            model=self.model.state_dict(),
            best=self.best.tensors,
            **{name: getattr(self, name).checkpoint() for name in PARTS},
        )

    def restore(self, state: State) -> None:
        for name in PLACE:
            setattr(self, name, state[name])
        self.model.load_state_dict(part(state, "model"))
        self.best.restore(part(state, "best"))
        if state["meter.triples"]:
            self.sampler.begin_epoch(self.trained + 1)
        for name in PARTS:
            getattr(self, name).restore(part(state, name))
        self.triples.go_to(self.trained, self.meter.triples)

    def plan(self, why: str = "asked for") -> str:
        """Say what runs, and why; the caches are where they are for a reason of their own."""
        compiled = self.kernels.name != "reference"
        parts = [f"{self.kernels.name} kernels ({self.kernels.reason})"]
        if compiled and isinstance(self.learner, AutogradLearner):
            parts.append("gradients by autograd")
        if compiled and self.config.filter_known:
            parts.append("known triples are filtered on the plain path")
        elif compiled and self.model.form not in FORMS:
            parts.append(f"{self.config.model} has no compiled form: candidates on the plain path")
        return "; ".join(filter(None, [*parts, self.sampler.plan(why)]))

    def _new_model(self, start: Parameters | None, seed: int) -> Model:
        config = self.config
        anywhere = MODELS.get(config.model).starts_anywhere()
        with self.device if anywhere else torch.device("cpu"):
            model = build(config.model, self.graph, config.dim, config.norm, config.reciprocal)
        model.prepare(self.graph.with_inverses() if model.reciprocal else self.graph)
        model.reset(Generator().manual_seed(seed))
        if start is not None:
            model.load_state_dict(start)
        return model.to(self.device)

    def _new_sampler(self, start: Parameters | None, seed: int) -> Sampler:
        options: dict[str, Any] = {} if start is None else {"start": start}
        kind = SAMPLERS.get(self.config.sampler)
        if kind.has_cache:
            options["progress"] = lambda done, total: self.report(Stage.FILLING, done, total)
        if kind.has_cache and self.config.cache.cache_place == "disk":
            options["folder"] = self.folder
        return kind(self.graph, self.config, self.device, seed, self.kernels, **options)

    def _learning(self) -> Learning:
        config, strength = self.config, penalty(self.config, self.model)
        cubes = config.penalty_norm == "n3"
        # The penalty λ/2·‖Θ‖² belongs to the sum over all triples; each triple takes its share.
        return Learning(
            self.objective,
            config.margin,
            config.lr,
            weight_decay=0.0 if cubes else strength / len(self.triples),
            rows=config.optimizer.startswith("row-"),
            adagrad=config.optimizer.endswith("adagrad"),
            adagrad_start=config.adagrad_start,
            cubes=strength if cubes else 0.0,
            scale=config.scale,
            relation_weight=config.relation_weight,
        )

    def _new_learner(self) -> Learner:
        learning = self._learning()
        if self.objective == "kvsall":
            return KVsAll(self.model, learning, self.kernels.distances, self.graph.train_index)
        if self.objective in ("1vsall", "softmax") or self.sampler.one_side:
            return self.kernels.learner(self.model, learning)
        return AutogradLearner(self.model, learning)
