"""The gradient step of one rank: its queries meet entities of all ranks."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import AutogradLearner, Batch, Learning
from nscaching.kernels.losses import LOGISTIC_ZERO, losses
from nscaching.kernels.optimizers import move
from nscaching.kernels.softmax import contrast
from nscaching.sharded.meeting import Meeting
from nscaching.sharded.sampler import Share
from nscaching.sharded.tables import is_sharded


class ShardLearner(AutogradLearner):
    """Learns from the queries of this rank; tables of relations are the same on all ranks."""

    steady = False

    def __init__(self, meeting: Meeting, learning: Learning) -> None:
        super().__init__(meeting.model, learning)
        self.meeting, self.world = meeting, meeting.world
        tables = [*self.model.named_parameters()]
        self.own = [table for name, table in tables if is_sharded(name)]
        self.common = [table for name, table in tables if not is_sharded(name)]

    def step(self, batch: Batch, negatives: Share, sums: Tensor) -> None:  # type: ignore[override]
        loss, teaching = (self._softmax if negatives.rivals else self._contrast)(batch, negatives)
        total = loss.sum()
        if self.learning.cubes:
            total = total + self.learning.cubes * self._cubes(batch)
        self.optimizer.zero_grad()
        total.backward()
        self._add_up()
        figures = torch.stack([loss.detach().sum(), teaching, squares(self.own)]).double()
        loss_of_all, teaching, of_entities = self.world.tally(figures)
        norm = (of_entities + squares(self.common)).sqrt()
        sums[:3] += torch.stack([loss_of_all, teaching, norm])
        sums[3] += sums[0].abs() < math.inf
        move(self.optimizer, self.learning.weight_decay * len(batch))

    def _contrast(self, batch: Batch, share: Share) -> tuple[Tensor, Tensor]:
        """Return the losses [n] of the own triples, and how many of them still teach."""
        negatives = share.negatives
        assert negatives is not None
        entity = negatives.entity
        answers = {Side.HEAD: batch.head, Side.TAIL: batch.tail}
        rows = [*share.rows.items()]
        candidates = [torch.cat([answers[s][r].unsqueeze(1), entity[r]], 1) for s, r in rows]
        query, relation = self._queries(batch, share)
        scores, _ = self.meeting.scores(query, relation, torch.cat(candidates))
        how = self.learning.objective, self.learning.margin
        loss, teaching = losses(*how, scores[:, 0], scores[:, 1:], negatives.adversarial)
        return loss, teaching.sum()

    def _softmax(self, batch: Batch, share: Share) -> tuple[Tensor, Tensor]:
        """Return the losses [n] of the own queries of both sides, and how many triples still teach.

        Of these numbers the sum over the ranks counts.
        """
        rivals, scale = share.rivals, self.learning.scale
        assert rivals is not None
        asked = []
        for side, row in share.rows.items():
            anchor, answer = (ids[row] for ids in side.query(batch.head, batch.tail))
            cached = rivals.cached(side).expand(len(row), -1)
            near = rivals.near(side, anchor, cached)
            asked.append((side, torch.cat([answer.unsqueeze(1), cached, near], 1), cached, near))
        query, relation = self._queries(batch, share)
        head, shared = self.meeting.scores(
            query, relation, torch.cat([rows for _, rows, _, _ in asked]), rivals.tail
        )
        sizes = [len(rows) for _, rows, _, _ in asked]
        parts = zip(asked, head.split(sizes), shared.split(sizes), strict=True)
        loss = torch.cat(
            [contrast(rivals, *which, scale * own, scale * of_all) for which, own, of_all in parts]
        )
        row = torch.cat([*share.rows.values()])
        if self.learning.relation_weight:
            loss = torch.cat([loss, self.learning.relation_weight * self._relations(batch, share)])
            sides = Side if self.model.reciprocal else (Side.TAIL,)
            row = torch.cat([row, *(share.rows[side] for side in sides)])
        # The loss of a triple is the sum of those of its queries, which may be of several ranks.
        by_triple = loss.new_zeros(len(batch)).index_add_(0, row, loss.detach())
        teaching = (self.world.sum(by_triple, "figures") > LOGISTIC_ZERO).sum()
        return loss, teaching / self.world.size

    def _queries(self, batch: Batch, share: Share) -> tuple[Tensor, Tensor]:
        """Return the own queries [n, D] of a batch and their relations, as the model asks them."""
        queries, relations = [], []
        for side, row in share.rows.items():
            anchor, _ = side.query(batch.head, batch.tail)
            asked, relation = self.model.asked(side, batch.relation[row])
            place = self.meeting.shards.place(anchor[row])
            queries.append(self.model.query(asked, place, relation))
            relations.append(relation)
        return torch.cat(queries), torch.cat(relations)

    def _relations(self, batch: Batch, share: Share) -> Tensor:
        """Return −log p(r | h, t) [n], and with reciprocal relations −log p(r⁻¹ | t, h) [n]."""
        losses = []
        for side in Side if self.model.reciprocal else (Side.TAIL,):
            row = share.rows[side]
            anchor, answer = (ids[row] for ids in side.query(batch.head, batch.tail))
            here = self.model.entity_rows(self.meeting.shards.place(anchor))
            rows = torch.cat([here, self.meeting.rows(answer)])
            first, second = torch.arange(len(rows), device=rows.device).chunk(2)
            model = self.model.with_rows(rows, self.model.relation)
            scores = self.learning.scale * model.score_relations(first, second)
            wanted = self.model.asked(side, batch.relation[row])[1]
            losses.append(F.cross_entropy(scores, wanted, reduction="none"))
        return torch.cat(losses)

    def _cubes(self, batch: Batch) -> Tensor:
        """Return the own part of ``kernels.learner.cubes``: relations go with the heads."""
        model, shards = self.model, self.meeting.shards
        head, tail = shards.mine(batch.head), shards.mine(batch.tail)
        own = shards.place(torch.cat([batch.head[head], batch.tail[tail]]))
        total = model.moduli(model.entity_rows(own)).pow(3).sum()
        for side in Side:
            relation = model.asked(side, batch.relation[head])[1]
            total = total + model.moduli(model.relation_rows(relation)).pow(3).sum() / 2
        return total

    def _add_up(self) -> None:
        """Add the gradients of all ranks by the tables that they have in common."""
        for table in self.common:
            if table.grad is None:
                table.grad = torch.zeros_like(table)
        whole = torch.cat([table.grad.flatten() for table in self.common if table.grad is not None])
        self.world.sum(whole, "gradients of relations")
        parts = whole.split([table.numel() for table in self.common])
        for table, part in zip(self.common, parts, strict=True):
            table.grad = part.view_as(table)


def squares(tables: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of the gradients, which tables without a part do not have."""
    found = [t.grad.double().square().sum() for t in tables if t.grad is not None]
    return torch.stack(found).sum()
