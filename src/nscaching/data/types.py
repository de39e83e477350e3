"""The entities that a relation was seen with in training, on each side: its type there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nscaching.data.index import Ids, Side

MOST_NEW = 0.1  # chance of a new entity, up to which the known ones go first


@dataclass(frozen=True, eq=False)
class RelationType:
    """What the training triples of one relation show."""

    triples: Ids  # [n, 3]

    @classmethod
    def of(cls, train: Ids, relation: int) -> RelationType:
        return cls(train[train[:, 1] == relation])

    def entities(self, side: Side) -> Ids:
        """Return the entities that stand on a side of the relation, ascending."""
        return self._heads if side is Side.HEAD else self._tails

    @cached_property
    def _heads(self) -> Ids:
        return np.unique(self.triples[:, 0])

    @cached_property
    def _tails(self) -> Ids:
        return np.unique(self.triples[:, 2])

    def is_closed(self, side: Side) -> bool:
        """Whether a further triple would hardly bring a new entity to a side.

        Good and Turing's estimate of that chance: the share of triples whose entity stands there
        once.
        """
        return self._closed[side]

    @cached_property
    def _closed(self) -> dict[Side, bool]:
        found = {}
        for side, column in ((Side.HEAD, self.triples[:, 0]), (Side.TAIL, self.triples[:, 2])):
            _, count = np.unique(column, return_counts=True)
            found[side] = bool((count == 1).sum() <= MOST_NEW * len(column))
        return found

    @cached_property
    def may_loop(self) -> bool:
        """Whether an entity may stand on both sides of a triple; unknown without triples."""
        loops = self.triples[:, 0] == self.triples[:, 2]
        return not len(self.triples) or bool(loops.any())
