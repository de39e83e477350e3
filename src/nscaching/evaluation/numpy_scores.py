"""Scores by NumPy of models q·e and −‖q − e‖: a run answers without the import of PyTorch.

The plain twins of ``query`` and ``score_all``; a test compares them for every such model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Longs, Side
from nscaching.evaluation.shortlist import Scored

BLOCK = 2 << 20  # bytes of entity rows that are scored at once: they fit into a processor's cache
MOST = 64 << 20  # bytes of the scores of queries that are asked at once

Rows = npt.NDArray[Any]  # float32
Query = Callable[[Side, Rows, Rows], Rows]  # of anchors [n, D] and relations [n, D′] → [n, D]


@dataclass(frozen=True)
class Twin:
    """How a model of PyTorch scores, as its class says it there."""

    query: Query
    distance: bool = False  # −‖q − e‖, else q·e
    unit: bool = False  # entity rows are scaled to unit length
    complex_rows: bool = False  # norm 1 is the sum of moduli
    weighted: bool = False  # scores are multiplied by the relation's weight
    widths: tuple[int, int] = (1, 1)  # of rows, entity's and relation's, by dim
    matrix: bool = False  # a relation's row has dim² numbers


def _translated(side: Side, anchor: Rows, relation: Rows) -> Rows:
    return anchor + (relation if side is Side.TAIL else -relation)


def _multiplied(side: Side, anchor: Rows, relation: Rows) -> Rows:
    return anchor * relation


def _rotated(side: Side, anchor: Rows, phase: Rows) -> Rows:
    return _complex(side, anchor, np.concatenate([np.cos(phase), np.sin(phase)], axis=1))


def _complex(side: Side, anchor: Rows, relation: Rows) -> Rows:
    real, imaginary = np.split(relation, 2, axis=1)
    sign = 1 if side is Side.TAIL else -1
    return _times(anchor, np.concatenate([real, sign * imaginary], axis=1))


def _times(a: Rows, b: Rows) -> Rows:
    """Multiply complex numbers, stored as [real | imaginary]."""
    (a_re, a_im), (b_re, b_im) = (np.split(x, 2, axis=1) for x in (a, b))
    return np.concatenate([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], axis=1)


def _half_complex(side: Side, anchor: Rows, relation: Rows) -> Rows:
    real = anchor.shape[1] - 2 * (anchor.shape[1] // 4)
    turned = _complex(side, anchor[:, real:], relation[:, real:])
    return np.concatenate([anchor[:, :real] * relation[:, :real], turned], axis=1)


def _simple(side: Side, anchor: Rows, relation: Rows) -> Rows:
    as_head, as_tail = np.split(anchor, 2, axis=1)
    forward, inverse = side.query(*np.split(relation, 2, axis=1))
    return np.concatenate([as_tail * inverse, as_head * forward], axis=1) / 2


def _convolved(side: Side, anchor: Rows, relation: Rows) -> Rows:
    a, r = np.fft.rfft(anchor), np.fft.rfft(relation)
    product = r * a if side is Side.TAIL else np.conj(r) * a
    return np.fft.irfft(product, n=anchor.shape[1]).astype(np.float32)


def _by_matrix(side: Side, anchor: Rows, relation: Rows) -> Rows:
    matrices = relation.reshape(len(anchor), anchor.shape[1], -1)
    indices = "nd,nde->ne" if side is Side.TAIL else "ne,nde->nd"
    query: Rows = np.einsum(indices, anchor, matrices)
    return query


TWINS = {
    "TransE": Twin(_translated, distance=True, unit=True),
    "TransM": Twin(_translated, distance=True, unit=True, weighted=True),
    "RotatE": Twin(_rotated, distance=True, complex_rows=True, widths=(2, 1)),
    "DistMult": Twin(_multiplied),
    "ComplEx": Twin(_complex, widths=(2, 2)),
    "ANALOGY": Twin(_half_complex),
    "SimplE": Twin(_simple, widths=(2, 2)),
    "HolE": Twin(_convolved),
    "RESCAL": Twin(_by_matrix, matrix=True),
}


class NumpyScores:
    """The scores of a model by its tables; see ``Scores``."""

    def __init__(self, config: TrainConfig, tables: Mapping[str, Rows], relations: int) -> None:
        self.twin, self.norm = TWINS[config.model], config.norm
        self.entity, self.relation = tables["entity"], tables["relation"]
        self.weight = tables["weight"] if self.twin.weighted else None
        self.own_relations, self.reciprocal = relations, config.reciprocal

    def at_once(self) -> int:
        return max(1, MOST // (4 * len(self.entity)))

    def of_entities(self, side: Side, anchor: Longs, relation: Longs) -> Scored:
        if self.reciprocal and side is Side.HEAD:
            side, relation = Side.TAIL, relation + self.own_relations
        query = self.twin.query(side, self.rows(anchor), self.relation[relation])
        scores = np.empty((len(anchor), len(self.entity)), dtype=np.float32)
        size = max(1, BLOCK // self.entity[:1].nbytes)
        for begin in range(0, len(self.entity), size):
            some = slice(begin, begin + size)
            scores[:, some] = self._meet(query, self.rows(some))
        return self._weighted(scores, relation[:, np.newaxis])

    def of_relations(self, head: Longs, tail: Longs) -> Scored:
        every = np.arange(self.own_relations)
        rows = zip(self.rows(head), self.rows(tail), strict=True)
        scores = np.empty((len(head), len(every)), dtype=np.float32)
        for i, (h, t) in enumerate(rows):
            heads = np.broadcast_to(h, (len(every), len(h)))
            query = self.twin.query(Side.TAIL, heads, self.relation[every])
            scores[i] = self._meet(query, t[np.newaxis])[:, 0]
        return self._weighted(scores, every)

    def rows(self, which: Longs | slice) -> Rows:
        """Return the vectors of entities, as the model takes them."""
        rows = self.entity[which]
        if not self.twin.unit:
            return rows
        lengths: Rows = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.maximum(lengths, 1e-12)

    def _meet(self, query: Rows, rows: Rows) -> Scored:
        """Score rows [k, D] by queries [n, D] → [n, k]."""
        if not self.twin.distance:
            return query @ rows.T
        return np.stack([-self._length(one - rows) for one in query])

    def _length(self, difference: Rows) -> Scored:
        if self.norm == 2:
            length: Scored = np.linalg.norm(difference, axis=1)
        elif self.twin.complex_rows:
            length = np.hypot(*np.split(difference, 2, axis=1)).sum(axis=1)
        else:
            length = np.abs(difference).sum(axis=1)
        return length

    def _weighted(self, scores: Scored, relation: Longs) -> Scored:
        return scores if self.weight is None else scores * self.weight[relation]


def numpy_scores(
    config: TrainConfig, graph: KnowledgeGraph, arrays: Mapping[str, npt.NDArray[Any]]
) -> NumpyScores | None:
    """Return the scores of a run by its parameters, or None where PyTorch has to compute them.

    That is another form of model, or parameters that do not fit the configuration.
    """
    twin = TWINS.get(config.model)
    if twin is None:
        return None
    relations, (wide, wide_relation) = len(graph.relations), twin.widths
    of_relation = config.dim**2 if twin.matrix else wide_relation * config.dim
    rows = relations * (2 if config.reciprocal else 1)
    shapes: dict[str, tuple[int, ...]] = {
        "entity": (len(graph.entities), wide * config.dim),
        "relation": (rows, of_relation),
    }
    if twin.weighted:
        shapes["weight"] = (rows,)
    fits = arrays.keys() == shapes.keys() and all(
        arrays[name].shape == shape and arrays[name].dtype == np.float32
        for name, shape in shapes.items()
    )
    return NumpyScores(config, arrays, relations) if fits else None
