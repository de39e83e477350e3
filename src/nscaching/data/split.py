"""One file of triples → train, valid and test."""

from __future__ import annotations

import numpy as np

from nscaching.data.graph import SPLITS
from nscaching.data.index import Ids, Longs

__all__ = ["split_triples"]

COMPILED_FROM = 1_000_000  # triples: before, the loop is quicker than the import of its twin


def split_triples(triples: Ids, seed: int, share: float = 0.05) -> dict[str, Ids]:
    """Hold out ``share`` of the triples for valid and as many for test, by seed.

    A triple is held out only while its head, tail and relation still occur in train, so that
    nothing unseen is asked for; a sparse graph may therefore yield fewer than asked.
    """
    most = 2 * round(share * len(triples))
    order = np.random.default_rng(seed).permutation(len(triples))
    entity_left = np.bincount(triples[:, [0, 2]].ravel())
    relation_left = np.bincount(triples[:, 1])
    given = triples, order, entity_left, relation_left, most
    if len(triples) >= COMPILED_FROM:
        from nscaching.data.split_loops import hold_out

        held_out: Longs = hold_out(*given)
    else:
        held_out = _hold_out(*given)
    half = (len(held_out) + 1) // 2
    split = np.zeros(len(triples), dtype=np.int8)  # 0, 1, 2: train, valid, test
    split[held_out[:half]] = 1
    split[held_out[half:]] = 2
    return {name: triples[split == i] for i, name in enumerate(SPLITS)}


def _hold_out(
    triples: Ids, order: Longs, entity_counts: Longs, relation_counts: Longs, most: int
) -> Longs:
    """Return the rows that may be held out, in order, at most so many: the plain twin."""
    entity_left, relation_left = entity_counts.tolist(), relation_counts.tolist()
    held_out: list[int] = []
    for row in order.tolist():
        if len(held_out) == most:
            break
        head, relation, tail = triples[row].tolist()
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
    return np.array(held_out, dtype=np.int64)
