"""Which triples are held out, compiled: see ``splitting.split_triples``."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["hold_out"]


@njit(cache=True)
def hold_out(triples, order, entity_left, relation_left, most):
    """Return the rows that may be held out, in order, at most so many."""
    held_out = np.empty(most, np.int64)
    count = 0
    for n in range(len(order)):
        if count == most:
            break
        head, relation, tail = triples[order[n]]
        needed = 3 if head == tail else 2
        if (
            entity_left[head] >= needed
            and entity_left[tail] >= needed
            and relation_left[relation] >= 2
        ):
            entity_left[head] -= 1
            entity_left[tail] -= 1
            relation_left[relation] -= 1
            held_out[count] = order[n]
            count += 1
    return held_out[:count]
