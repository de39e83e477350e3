"""Score differences f(negative) − f(positive) over all negatives of watched triples."""

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
from nscaching.probes.config import ProbeConfig

QUANTILES = 201
"""Probabilities 0, 0.005, …, 1."""
TOP = 100
"""Number of largest differences that are kept one by one."""


def watched_triples(graph: KnowledgeGraph, probes: ProbeConfig, seed: int) -> Ids:
    """Return the watched triples [n, 3]: the named ones, then random ones of training."""
    if probes.watch > len(graph.train):
        raise UserError(
            f"{flag('watch')} {probes.watch}: {graph.name} has {len(graph.train):,} "
            "training triples"
        )
    drawn = np.random.default_rng(seed).choice(len(graph.train), probes.watch, replace=False)
    named = [
        (graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail))
        for head, relation, tail in map(ProbeConfig.parts, probes.watch_triple)
    ]
    return distinct(np.concatenate([np.array(named, np.int32).reshape(-1, 3), graph.train[drawn]]))


class Watch:
    """Scores every entity in place of the head and of the tail of some triples."""

    def __init__(
        self, graph: KnowledgeGraph, triples: Ids, margin: float | None, device: torch.device
    ) -> None:
        self.graph, self.triples, self.margin, self.device = graph, triples, margin, device

    def read(self, model: Model, kernels: Kernels, epoch: int) -> list[dict[str, Any]]:
        """Return a line for each triple and side that has negatives."""
        lines = []
        chunk = chunk_size(model)
        for side in Side:
            for begin in range(0, len(self.triples), chunk):
                some = self.triples[begin : begin + chunk]
                found = self._differences(model, kernels, side, some)
                for triple, quantiles, top in zip(some.tolist(), *found, strict=True):
                    if top:
                        lines.append(self._line(epoch, side, triple, quantiles, top))
        return lines

    @torch.no_grad()
    def _differences(
        self, model: Model, kernels: Kernels, side: Side, triples: Ids
    ) -> tuple[list[list[float]], list[list[float]]]:
        """Return quantiles and largest values of f(negative) − f(positive) for each triple."""
        head, relation, tail = triples.T
        anchor, answer = side.query(head, tail)
        asked, place = self._ids(answer), torch.arange(len(triples), device=self.device)
        scores = finite(kernels.score_all(model, side, self._ids(anchor), self._ids(relation)))
        difference = scores - scores.gather(1, asked.unsqueeze(1))
        row, entity = self.graph.filter_index[side].known(anchor, relation)
        known = torch.zeros_like(difference, dtype=torch.bool)
        known[self._ids(row), self._ids(entity)] = True
        known[place, asked] = True  # a watched triple need not be in the graph
        difference = ordered(difference.masked_fill(known, float("-inf")))
        first = known.sum(1)  # where the differences of negatives begin
        size = difference.shape[1] - first
        share = torch.linspace(0, 1, QUANTILES, dtype=torch.float64, device=self.device)
        exact = (size - 1).clamp(min=0).unsqueeze(1) * share
        last = difference.shape[1] - 1
        below = (first.unsqueeze(1) + exact.floor().long()).clamp_(max=last)
        above = (below + 1).clamp_(max=last)
        low, high = (difference.gather(1, at).double() for at in (below, above))
        quantiles = torch.lerp(low, high, exact - exact.floor()).tolist()
        largest = difference[:, -TOP:].flip(1).tolist()
        return quantiles, [top[:count] for top, count in zip(largest, size.tolist(), strict=True)]

    def _ids(self, ids: Ids | Longs) -> Tensor:
        return torch.from_numpy(ids.copy()).long().to(self.device)

    def _line(
        self, epoch: int, side: Side, triple: list[int], quantiles: list[float], top: list[float]
    ) -> dict[str, Any]:
        head, relation, tail = triple
        return {
            "epoch": epoch,
            "head": self.graph.entities[head],
            "relation": self.graph.relations[relation],
            "tail": self.graph.entities[tail],
            "side": side.value,
            "differences": [_short(value) for value in quantiles],
            "top": [_short(value) for value in top],
            "margin": self.margin,
        }


def _short(value: float) -> float:
    """Return a number to six digits: more digits are noise and double the file."""
    return float(f"{value:.6g}")
