"""The compiled path of one rank, for models with compiled queries."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import CacheAccess, Learning
from nscaching.kernels.cpu.kernels import NumbaKernels
from nscaching.kernels.learner import Learner
from nscaching.sharded.numba_learner import NumbaShardLearner
from nscaching.sharded.numba_refresh import Marks, ShardRefresh
from nscaching.sharded.path import PLAIN, Path, ShardScores
from nscaching.sharded.visit import Trip, Visit


@dataclass
class NumbaPath(Path):
    """Steps and refreshes by compiled loops, in the same messages."""

    kernels: NumbaKernels

    name = "numba"

    def learner(self, learning: Learning) -> Learner:
        threads = self.kernels.threads
        self.marks = Marks(threads.count, self.meeting.shards.entities)
        self.made = NumbaShardLearner(self.meeting, learning, threads)
        return self.made

    @torch.no_grad()
    def refresh(self, asked: CacheAccess) -> None:
        """Begin a refresh; the step that follows brings the scores, and ends the refresh."""
        learner = self.made.current()
        if asked.settings.strata > 1:
            PLAIN.refresh(dataclasses.replace(asked, model=NumbaScores(learner)))
            return
        refresh = ShardRefresh(asked, learner, self.meeting.shards, self.marks)
        if refresh.by_score:
            learner.due = refresh
        else:
            refresh.choose(np.empty(refresh.visit.ids.shape, np.float32))


class NumbaScores(ShardScores):
    """Scores by compiled loops, for refreshes that torch makes."""

    def __init__(self, learner: NumbaShardLearner) -> None:
        super().__init__(learner.meeting)
        self.learner = learner

    def score_candidates(
        self,
        side: Side,
        anchor: Tensor,
        relation: Tensor,
        candidates: Tensor,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        learner, meeting = self.learner, self.meeting
        query = learner.query(side, meeting.shards.place(anchor), relation)
        visit = Visit(torch.from_numpy(query), candidates.int().numpy())
        (scores,) = Trip(meeting, learner.threads, learner.rows, [visit]).scores()
        weight = meeting.model.weight_of(relation)
        found = torch.from_numpy(scores)
        return found if weight is None else found * weight.unsqueeze(1)
