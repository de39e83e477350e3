"""The gradient step of one rank by compiled loops: its queries meet entities of all ranks."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.batch import Batch
from nscaching.kernels.cpu import negatives as loops
from nscaching.kernels.cpu.query_learner import NumbaQueries
from nscaching.kernels.cpu.threads import Threads, torch_threads
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.queries import Asked, TakeBack
from nscaching.sharded.meeting import Meeting
from nscaching.sharded.numba_refresh import ShardRefresh
from nscaching.sharded.sampler import Share
from nscaching.sharded.visit import Trip, Visit


class NumbaShardLearner(NumbaQueries):
    """Learns as ``ShardLearner`` does; the places are the own anchors, and candidates that came."""

    steady = False
    due: ShardRefresh | None = None  # which the next step ends

    def __init__(self, meeting: Meeting, learning: Learning, threads: Threads) -> None:
        super().__init__(meeting.model, learning, threads)
        self.meeting, self.world = meeting, meeting.world

    def own_state(self) -> dict[str, Tensor]:
        return {"entity_moved": torch.from_numpy(self.moved)}

    def step(self, batch: Batch, negatives: Share, sums: Tensor) -> None:  # type: ignore[override]
        self.current()
        loss, teaching = self._contrast(batch, negatives)
        self.steps += 1
        squares = self._move_entities(len(batch))
        by_relation = self._relation_gradients()
        figures = by_relation.new_tensor([loss, teaching, squares])
        both = self.world.tally(
            torch.cat([by_relation.view(-1), figures]), "gradients of relations"
        )
        loss_of_all, teaching, of_entities = both[-3:].tolist()
        by_relation = both[:-3].view_as(by_relation)
        every = np.arange(len(by_relation) + 1)
        group = len(by_relation), every, every, every
        squares = self._update("relation", group, by_relation.numpy(), len(batch))
        sums[:3] += sums.new_tensor([loss_of_all, teaching, math.sqrt(of_entities + squares)])
        sums[3] += sums[0].abs() < math.inf

    def _contrast(self, batch: Batch, share: Share) -> tuple[float, float]:
        """Compare the own queries with their candidates; return loss and teaching triples."""
        negatives, model, learning = share.negatives, self.model, self.learning
        assert negatives is not None
        assert negatives.replace_head is not None
        place, heads, tails = self.meeting.shards.place, *share.rows.values()
        own = torch.cat([heads, tails])
        answer = torch.where(negatives.replace_head, batch.head, batch.tail)
        anchor = place(torch.cat([batch.tail[heads], batch.head[tails]]))
        relation, n = batch.relation[own], len(own)
        asked = Asked(anchor, relation, answer[own], len(heads), model.weight_of(relation), 1.0)
        query, take_back = self.make_queries(asked)
        false = torch.cat([negatives.head[heads], negatives.tail[tails]])
        ids = torch.cat([asked.answer.unsqueeze(1), false], 1).int().numpy()
        visit, due = Visit(query, ids), self.due
        visits = [visit] if due is None else [due.visit, visit]
        trip = Trip(self.meeting, self.threads, self.rows, visits)

        *values, slopes = trip.scores()
        met, given = trip.met_in(len(values)), anchor
        if learning.cubes:  # of this rank's answers, whoever asks for them
            answers = place(answer[self.meeting.shards.mine(answer)])
            given = torch.cat([answers, anchor])
        first, pairs = len(given), len(met.place)
        self._open_places(given, n, pairs)
        self.ids[first:] = torch.from_numpy(met.place)
        self.queries, self.asking = torch.from_numpy(met.query), met.asking
        shift = learning.margin if learning.objective == "shifted" else 0.0
        weights = torch.ones(n) if asked.weight is None else asked.weight
        self.threads.run(
            loops.compare, n, learning.objective == "margin", learning.margin, shift,
            negatives.adversarial, LOGISTIC_ZERO, learning.cubes > 0, weights, ids, slopes,
            self.loss, self.teaching, self.is_active[first - n : first],
        )  # fmt: skip
        active = self.is_active[first:].numpy()
        by_query = self.own_room("by_query", n, self.rows.shape[1])
        here, wait = trip.pull(len(values), met, slopes, active, by_query.numpy())
        self.by_candidate = torch.from_numpy(here).unsqueeze(1)
        if due is not None:
            due.choose(*values)
            self.due = None
        wait()
        with torch_threads(1):
            take_back(by_query)
            if learning.cubes:
                self.given[: first - n] = self._cubes_back(answers)
        return float(self.loss[:n].sum(dtype=np.float64)), float(self.teaching[:n].sum())

    def make_queries(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        if not len(asked.anchor):  # no query of this step is here
            return torch.empty(0, self.rows.shape[1]), lambda by_query: None
        with torch_threads(1):  # products of matrices depend on the number of threads
            return super().make_queries(asked)

    def _relation_gradients(self) -> Tensor:
        """Return the gradients of this rank's queries by all relations."""
        total = torch.zeros(self.relations.shape)
        for ids, gradients in self.by_relation:
            total.index_add_(0, torch.from_numpy(ids), torch.from_numpy(gradients))
        return total
