"""Entities that stand out: hubs, blank nodes, those of one triple, those that training has not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nscaching.audit.overlaps import Flags
from nscaching.audit.splits import blank_nodes
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import Ids, Longs, distinct

HUB = 100  # times the triples of the median entity


def all_triples(graph: KnowledgeGraph) -> Ids:
    """Return the triples of all splits, each once."""
    return distinct(np.concatenate([graph.split(split) for split in SPLITS]))


def degrees(graph: KnowledgeGraph) -> Longs:
    """Return in how many triples each entity [|E|] stands, as head, tail or both."""
    head, _, tail = all_triples(graph).T
    size = len(graph.entities)
    both = np.bincount(head, minlength=size) + np.bincount(tail, minlength=size)
    return both - np.bincount(head[head == tail], minlength=size)


@dataclass(frozen=True, eq=False)
class Entities:
    """The triples of each entity, and which entities stand out."""

    graph: KnowledgeGraph
    degree: Longs  # [|E|]
    kinds: dict[str, Flags]  # kind → [|E|]

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> Entities:
        degree = degrees(graph)
        held_out = np.concatenate([graph.valid, graph.test])
        seen, asked = np.zeros((2, len(degree)), dtype=bool)
        seen[graph.train[:, [0, 2]]] = True
        asked[held_out[:, [0, 2]]] = True
        usual = np.median(degree[degree > 0]) if (degree > 0).any() else 0
        kinds = {
            "hub": degree > HUB * usual,
            "one triple": degree == 1,
            "no triple": degree == 0,
            "blank node": blank_nodes(graph),
            "not in train": asked & ~seen,
        }
        return cls(graph, degree, kinds)

    def largest(self, chosen: Flags, most: int) -> list[dict[str, Any]]:
        """Return some of the chosen entities, those with most triples first."""
        ids = np.flatnonzero(chosen)
        ids = ids[np.argsort(-self.degree[ids], kind="stable")][:most]
        return [self.to_dict(int(i)) for i in ids]

    def to_dict(self, entity: int) -> dict[str, Any]:
        name = self.graph.entities[entity]
        degree = int(self.degree[entity])
        return {"name": name, "label": self.graph.label(entity), "triples": degree}
