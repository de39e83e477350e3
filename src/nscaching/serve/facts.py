"""The facts of an entity, found without a look at all triples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import Ids, Longs, Side


class Group(NamedTuple):
    """The facts of an entity with one relation, on one side."""

    relation: int
    side: Side  # of the other entities
    others: Ids  # the most linked first
    splits: list[str]


class Facts:
    """The triples of all splits, by their heads and by their tails."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        parts = [graph.split(split) for split in SPLITS]
        self.triples = np.concatenate(parts)
        self.split = np.repeat(np.arange(len(SPLITS), dtype=np.int8), [len(p) for p in parts])
        count = len(graph.entities)
        self.order = {place: _by(self.triples[:, place]) for place in (0, 2)}
        self.begins = {
            place: np.searchsorted(self.triples[order, place], np.arange(count + 1))
            for place, order in self.order.items()
        }
        self.links: Longs = sum(np.diff(begins) for begins in self.begins.values())  # type: ignore[assignment]

    def rows(self, entity: int, place: int) -> Ids:
        """Return the rows of the triples that have an entity at a place."""
        begin, end = self.begins[place][entity : entity + 2]
        rows: Ids = self.order[place][begin:end]
        return rows

    def groups(self, entity: int) -> list[Group]:
        """Return the facts of an entity by relation and side, the largest group first."""
        found = []
        for place, other, side in ((0, 2, Side.TAIL), (2, 0, Side.HEAD)):
            rows = self.rows(entity, place)
            relations = self.triples[rows, 1]
            for relation in np.unique(relations).tolist():
                mine = rows[relations == relation]
                mine = mine[np.argsort(-self.links[self.triples[mine, other]], kind="stable")]
                splits = [SPLITS[split] for split in self.split[mine]]
                found.append(Group(relation, side, self.triples[mine, other], splits))
        return sorted(found, key=lambda group: -len(group.others))

    def kinds(self, entity: int) -> list[tuple[Side, int]]:
        """Return (asked side, relation) of every training fact of an entity."""
        found = []
        for place, side in ((0, Side.TAIL), (2, Side.HEAD)):
            rows = self.rows(entity, place)
            found += [(side, int(r)) for r in self.triples[rows[self.split[rows] == 0], 1]]
        return found


def _by(column: Ids) -> Ids:
    return np.argsort(column, kind="stable").astype(np.int32)
