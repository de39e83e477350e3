"""Score differences f(negative) − f(positive) over all negatives of watched triples."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Longs, Side, distinct
from nscaching.errors import UserError, flag
from nscaching.evaluation.ranking import chunk_size
from nscaching.kernels import Kernels
from nscaching.kernels.choose import ordered
from nscaching.models import Model, finite
from nscaching.probes import ProbeConfig

QUANTILES = 201
"""Probabilities 0, 0.005, …, 1."""
TOP = 100
"""Number of largest differences that are kept one by one."""


def watched_triples(graph: KnowledgeGraph, probes: ProbeConfig, seed: int) -> Ids:
    """Return the watched triples [n, 3]: the named ones, then random ones of training."""
    if probes.watch > len(graph.train):
        there = f"{graph.name} has {len(graph.train):,} training triples"
        raise UserError(f"{flag('watch')} {probes.watch}: {there}")
    drawn = np.random.default_rng(seed).choice(len(graph.train), probes.watch, replace=False)
    named = [
        (graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail))
        for head, relation, tail in map(ProbeConfig.parts, probes.watch_triple)
    ]
    return distinct(np.concatenate([np.array(named, np.int32).reshape(-1, 3), graph.train[drawn]]))


@dataclass(frozen=True)
class Watch:
    """Scores every entity in place of the head and of the tail of some triples [n, 3]."""

    graph: KnowledgeGraph
    triples: Ids
    model: Model
    kernels: Kernels
    margin: float | None

    def read(self, epoch: int) -> list[dict[str, Any]]:
        """Return a line of scores.jsonl for each triple and side that has negatives."""
        graph, lines, chunk = self.graph, [], chunk_size(self.model)
        for side, begin in product(Side, range(0, len(self.triples), chunk)):
            some = self.triples[begin : begin + chunk]
            found = zip(some.tolist(), *self._differences(side, some), strict=True)
            lines += [
                {
                    "epoch": epoch,
                    "head": graph.entities[head],
                    "relation": graph.relations[relation],
                    "tail": graph.entities[tail],
                    "side": side.value,
                    "differences": _short(quantiles),
                    "top": _short(top),
                    "margin": self.margin,
                }
                for (head, relation, tail), quantiles, top in found
                if top
            ]
        return lines

    @torch.no_grad()
    def _differences(self, side: Side, triples: Ids) -> tuple[list[list[float]], list[list[float]]]:
        """Return quantiles and largest values of f(negative) − f(positive) for each triple."""
        head, relation, tail = triples.T
        anchor, answer = side.query(head, tail)
        asked = self._ids(answer)
        place = torch.arange(len(asked), device=asked.device)
        scores = self.kernels.score_all(self.model, side, self._ids(anchor), self._ids(relation))
        scores = finite(scores)
        difference = scores - scores.gather(1, asked.unsqueeze(1))
        row, entity = self.graph.filter_index[side].known(anchor, relation)
        known = torch.zeros_like(difference, dtype=torch.bool)
        known[self._ids(row), self._ids(entity)] = True
        known[place, asked] = True  # a watched triple need not be in the graph
        difference = ordered(difference.masked_fill(known, float("-inf")))
        first = known.sum(1)  # where the differences of negatives begin
        size = difference.shape[1] - first
        share = torch.linspace(0, 1, QUANTILES, dtype=torch.float64, device=asked.device)
        exact = (size - 1).clamp(min=0).unsqueeze(1) * share
        last = difference.shape[1] - 1
        below = (first.unsqueeze(1) + exact.floor().long()).clamp_(max=last)
        above = (below + 1).clamp_(max=last)
        low, high = (difference.gather(1, at).double() for at in (below, above))
        quantiles = torch.lerp(low, high, exact - exact.floor()).tolist()
        largest = difference[:, -TOP:].flip(1).tolist()
        return quantiles, [top[:count] for top, count in zip(largest, size.tolist(), strict=True)]

    def _ids(self, ids: Ids | Longs) -> Tensor:
        return torch.from_numpy(ids.copy()).long().to(self.model.entity.device)


def _short(values: list[float]) -> list[float]:
    """Return the numbers to six digits: more digits are noise and double the file."""
    return [float(f"{value:.6g}") for value in values]
