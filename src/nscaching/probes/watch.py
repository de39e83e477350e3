"""Score differences of watched triples: what the model thinks of all their negatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Side, distinct
from nscaching.errors import UserError, flag
from nscaching.evaluation.ranking import chunk_size
from nscaching.kernels import Kernels
from nscaching.kernels.sorting import ordered
from nscaching.models import Model, finite
from nscaching.probes.config import ProbeConfig

__all__ = ["QUANTILES", "TOP", "Watch", "watched_triples"]

QUANTILES = 201
"""Probabilities 0, 0.005, …, 1."""
TOP = 100
"""Largest differences that are kept one by one."""


def watched_triples(graph: KnowledgeGraph, probes: ProbeConfig, seed: int) -> Ids:
    """Return the watched triples [n, 3]: those named, then those drawn from training."""
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
        self.graph, self.triples, self.margin = graph, triples, margin
        head, relation, tail = triples.T
        self.relation = torch.from_numpy(relation.copy()).long().to(device)
        self.sides: dict[Side, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        """Anchor [n] and answer [n]; row and entity of all that is no negative."""
        for side in Side:
            anchor, answer = side.query(head, tail)
            row, entity = graph.filter_index[side].known(anchor, relation)
            # The triple itself is no negative, whether the graph knows it or not.
            pairs = np.stack(
                [
                    np.concatenate([row, np.arange(len(triples))]),
                    np.concatenate([entity, answer]).astype(np.int64),
                ]
            )
            known = torch.from_numpy(np.unique(pairs, axis=1)).to(device)  # [2, pairs]
            given, asked = (
                torch.from_numpy(ids.copy()).long().to(device) for ids in (anchor, answer)
            )
            self.sides[side] = given, asked, known[0], known[1]

    def read(self, model: Model, kernels: Kernels, epoch: int) -> list[dict[str, Any]]:
        """Return a line for each triple and side that has negatives."""
        lines = []
        chunk = chunk_size(model)
        for side in Side:
            for begin in range(0, len(self.triples), chunk):
                numbers = range(begin, min(begin + chunk, len(self.triples)))
                found = self._differences(model, kernels, side, numbers)
                lines += [self._line(epoch, side, i, *found[i]) for i in found]
        return lines

    @torch.no_grad()
    def _differences(
        self, model: Model, kernels: Kernels, side: Side, numbers: range
    ) -> dict[int, tuple[list[float], list[float]]]:
        """Return quantiles and largest values of f(negative) − f(positive) of some triples."""
        some = slice(numbers.start, numbers.stop)
        anchor, answer, row, entity = self.sides[side]
        scores = finite(kernels.score_all(model, side, anchor[some], self.relation[some]))
        difference = scores - scores.gather(1, answer[some].unsqueeze(1))
        mine = (row >= numbers.start) & (row < numbers.stop)
        row, entity = row[mine] - numbers.start, entity[mine]
        difference[row, entity] = float("-inf")
        known = torch.bincount(row, minlength=len(numbers))  # [n], each at the start of its row
        size = difference.shape[1] - known
        difference = ordered(difference)
        share = torch.linspace(0, 1, QUANTILES, dtype=torch.float64, device=row.device)
        place = (size - 1).clamp(min=0).unsqueeze(1) * share
        last = difference.shape[1] - 1
        below = (known.unsqueeze(1) + place.floor().long()).clamp_(max=last)
        above = (below + 1).clamp_(max=last)
        low, high = (difference.gather(1, at).double() for at in (below, above))
        quantiles = torch.lerp(low, high, place - place.floor()).tolist()
        largest = difference[:, -TOP:].flip(1).tolist()
        return {
            number: (quantiles[i], largest[i][: min(TOP, negatives)])
            for i, (number, negatives) in enumerate(zip(numbers, size.tolist(), strict=True))
            if negatives
        }

    def _line(
        self, epoch: int, side: Side, number: int, quantiles: list[float], top: list[float]
    ) -> dict[str, Any]:
        head, relation, tail = self.triples[number].tolist()
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
    """Return a number to six digits: more are noise, and twice the file."""
    return float(f"{value:.6g}")
