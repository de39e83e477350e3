"""One file of triples → train, valid and test."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nscaching.answers import Longs
from nscaching.graph import SPLITS, Ids

__all__ = ["split_triples"]

CHUNK = 1 << 16


def split_triples(triples: Ids, seed: int, share: float = 0.05) -> dict[str, Ids]:
    """Hold out ``share`` of the triples for valid and as many for test, by seed.

    A triple is held out only while its head, tail and relation still occur in train, so that
    nothing unseen is asked for; a sparse graph may therefore yield fewer than asked.
    """
    goal = round(share * len(triples))
    entity_left = np.bincount(triples[:, [0, 2]].ravel()).tolist()
    relation_left = np.bincount(triples[:, 1]).tolist()
    held_out: list[int] = []
    order = np.random.default_rng(seed).permutation(len(triples))
    for row, (head, relation, tail) in _rows(triples, order):
        if len(held_out) == 2 * goal:
            break
        needed = 3 if head == tail else 2  # a loop takes two occurrences of one entity
        if (
            entity_left[head] >= needed
            and entity_left[tail] >= needed
            and relation_left[relation] >= 2
        ):
            entity_left[head] -= 1
            entity_left[tail] -= 1
            relation_left[relation] -= 1
            held_out.append(row)
    half = (len(held_out) + 1) // 2
    split = np.zeros(len(triples), dtype=np.int8)  # 0, 1, 2: train, valid, test
    split[held_out[:half]] = 1
    split[held_out[half:]] = 2
    return {name: triples[split == i] for i, name in enumerate(SPLITS)}


def _rows(triples: Ids, order: Longs) -> Iterator[tuple[int, list[int]]]:
    """Yield (row, triple) in some order, as Python's numbers; only a part of them at a time."""
    for some in np.split(order, range(CHUNK, len(order), CHUNK)):
        yield from zip(some.tolist(), triples[some].tolist(), strict=True)
