"""Gradient steps on CPUs in which query vectors meet the rows of entities."""

import math

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.codes import FORMS, GIVEN
from nscaching.kernels.cpu import negatives as loops
from nscaching.kernels.cpu import queries
from nscaching.kernels.cpu.learner import Array, NumbaLearner
from nscaching.kernels.cpu.threads import Threads, torch_threads
from nscaching.kernels.losses import LOGISTIC_ZERO
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.queries import Asked, QueryLearner, TakeBack
from nscaching.models import Model


class NumbaQueries(QueryLearner, NumbaLearner):
    """Sums the gradients by each entity over places, which are of two kinds.

    The first places have rows ``given``, which are gradients already; the anchors' are the last of
    them. The others are candidates of the queries, whose gradients follow from slopes.
    """

    def __init__(self, model: Model, learning: Learning, threads: Threads) -> None:
        super().__init__(model, learning, threads)
        self.room: dict[str, Tensor] = {}
        self.asking = np.empty(0, np.int32)  # whose candidates these are; empty: row by row

    def own_room(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return memory for a tensor that is written anew in every step."""
        numbers = math.prod(shape)
        if name not in self.room or self.room[name].numel() < numbers:
            self.room[name] = torch.empty(numbers, dtype=dtype)
        return self.room[name][:numbers].view(shape)

    def ask(self, asked: Asked) -> tuple[Tensor, TakeBack]:
        n, how, tables = len(asked.anchor), (self.kind, asked.of_heads), (self.rows, self.relations)
        ends, query = (asked.anchor, asked.relation), self.own_room("query", n, self.rows.shape[1])
        self.threads.run(queries.ask, n, *how, *tables, *ends, query, numbers=query.numel())

        def take_back(by_query: Tensor) -> None:
            strengths = float(self.learning.cubes), asked.share
            self.threads.run(
                queries.ask_back, n, *how, *strengths, *tables, *ends,
                by_query, self.given[-n:], self.g_relation, numbers=query.numel(),
            )  # fmt: skip
            self.by_relation.append((asked.relation.numpy(), self.g_relation[:n]))

        return query, take_back

    def make_places(self, given: Tensor, n: int, count: int) -> None:
        """Make room for the places of a step: entities ``given``, then ``count`` of each query."""
        self._open_places(given, n, n * count)
        first = len(given)
        self.candidates = self.ids[first:].view(n, count)
        self.candidate_active = self.is_active[first:].view(n, count)
        self.by_candidate = self.own_room("slopes", n, count)

    def _open_places(self, given: Tensor, n: int, count: int) -> None:
        """Make room for places: entities ``given``, then ``count`` of n queries together."""
        first, places = len(given), len(given) + count
        relations = 2 * self.model.relations  # that torch gives gradients of, at most
        self._make_room(n, places + relations, min(places, self.model.entities))
        self.ids = self.own_room("ids", places, dtype=torch.int64)
        self.is_active = self.own_room("active", places, dtype=torch.bool)
        self.given = self.own_room("given", first, self.rows.shape[1])
        self.ids[:first], self.is_active[:first] = given, True
        if self.kind == GIVEN:  # compiled loops write what torch adds
            self.given[-n:] = 0
        self.by_relation: list[tuple[Array, Array]] = []

    def add_rows(self, table: str, ids: Tensor, gradients: Tensor) -> None:
        if table == "entity":  # the anchors
            self.given[-len(ids) :] += gradients
        else:
            self.by_relation.append((ids.numpy(), gradients.numpy()))

    def is_single(self, negatives: Negatives) -> bool:
        return self.kind != GIVEN and super().is_single(negatives)

    def _learn_from_many(self, batch: Batch, negatives: Negatives) -> None:
        learning = self.learning
        self._meet(batch, *self.replaced(batch, negatives))
        shift = learning.margin if learning.objective == "shifted" else 0.0
        self.threads.run(
            loops.contrast, len(batch), *self.how, learning.objective == "margin",
            learning.margin, shift, negatives.adversarial, LOGISTIC_ZERO, learning.cubes > 0,
            self.weights, *self.met, self.loss, self.teaching, *self.pulled,
            numbers=self.candidates.numel() * self.rows.shape[1],
        )  # fmt: skip
        self._learn()

    def scores(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> Tensor:
        self._meet(batch, replace_head, entity)
        self.threads.run(loops.score, len(batch), *self.how, self.weights, *self.met)
        return torch.empty(entity.shape).index_copy_(0, self.order_of, self.by_candidate)

    def learn(self, batch: Batch, replace_head: Tensor, entity: Tensor, slopes: Tensor) -> None:
        torch.mul(slopes[self.order_of], self.weights.unsqueeze(1), out=self.by_candidate)
        how = *self.how, self.learning.cubes > 0
        self.threads.run(loops.pull, len(batch), *how, *self.met, *self.pulled)
        self._learn()

    def _meet(self, batch: Batch, replace_head: Tensor, entity: Tensor) -> None:
        """Make the queries of a batch, and places for the entities [B, C] that they meet."""
        n, self.how = len(batch), (FORMS[self.model.form], self.model.metric)
        self.asked, self.order_of = Asked.once(self.model, batch, replace_head)
        weight = self.asked.weight
        self.weights = torch.ones(n) if weight is None else weight
        ends = [self.asked.answer, self.asked.anchor]
        self.make_places(torch.cat(ends) if self.learning.cubes else ends[1], *entity.shape)
        torch.index_select(entity, 0, self.order_of, out=self.candidates)
        with torch_threads(1):  # products of matrices depend on the number of threads
            self.queries, self.take_back = self.make_queries(self.asked)
        self.by_query = self.own_room("by_query", n, self.rows.shape[1])
        self.met = self.queries, self.rows, self.candidates, self.by_candidate
        anchor_active = self.is_active[: len(self.given)][-n:]
        self.pulled = self.candidate_active, anchor_active, self.by_query

    def _learn(self) -> None:
        """Learn by the slopes of the places and the gradients by the queries."""
        with torch_threads(1):
            self.take_back(self.by_query)
            if self.learning.cubes:
                self.given[: len(self.by_query)] = self._cubes_back(self.asked.answer)
        self.move_all(len(self.by_query))

    def _cubes_back(self, entity: Tensor) -> Tensor:
        """Return the gradients of λ·Σ|e|³ by the rows of some entities."""
        rows = self.vectors["entity"][entity].requires_grad_()
        with torch.enable_grad():
            total = self.learning.cubes * self.model.moduli(rows).pow(3).sum()
        return torch.autograd.grad(total, rows)[0]

    def move_all(self, n: int) -> None:
        """Move the parameters by the gradients of n triples."""
        self.steps += 1
        squares = self._move_entities(n)
        ids, gradients = map(np.concatenate, zip(*self.by_relation, strict=True))
        group = self._group(ids[:, None], np.ones(len(ids), np.bool_))
        self.squares_sum = squares + self._update("relation", group, gradients, n)

    def _move_entities(self, n: int) -> float:
        """Move the entities; return the sum of squares of their gradients."""
        group = self._group(self.ids.numpy()[:, None], self.is_active.numpy())
        places = int(group[2][group[0]])
        self.threads.run(
            queries.by_entity, places, FORMS[self.model.form], self.model.metric, self.rows,
            self.queries, self.given, self.by_candidate, self.asking, *group, self.g_entity,
            numbers=places * self.rows.shape[1],
        )  # fmt: skip
        each = np.arange(group[0] + 1)  # the u-th entity's gradient is the u-th
        return self._update("entity", (group[0], group[1], each, each), self.g_entity, n)
