"""The entities that a relation was seen with in training, on each side: its type there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nscaching.data.index import Ids, Longs, Side

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
        return self._counted[side][0]

    @cached_property
    def _counted(self) -> dict[Side, tuple[Ids, Longs]]:
        """The entities of each side, ascending, and how many triples each has there."""
        columns = {Side.HEAD: self.triples[:, 0], Side.TAIL: self.triples[:, 2]}
        return {side: np.unique(ids, return_counts=True) for side, ids in columns.items()}

    def is_closed(self, side: Side) -> bool:
        """Whether a further triple would hardly bring a new entity to a side.

        Good and Turing's estimate of that chance: the share of triples whose entity stands there
        once.
        """
        once = (self._counted[side][1] == 1).sum()
        return bool(once <= MOST_NEW * len(self.triples))

    @cached_property
    def may_loop(self) -> bool:
        """Whether an entity may stand on both sides of a triple; unknown without triples."""
        loops = self.triples[:, 0] == self.triples[:, 2]
        return not len(self.triples) or bool(loops.any())
