"""What each triple of a split has in common with training: repeats, inverses, unseen names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from nscaching.audit.overlaps import Flags, Progress, code, pair_index, shared_pairs
from nscaching.audit.relations import Relations
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import AnswerIndex, Ids
from nscaching.data.sorting import is_in

FINDINGS = {
    "repeated": "stand in an earlier split too",
    "leaking": "have an inverse or twin in train",
    "inverse": "… the inverse",
    "twin": "… the twin",
    "reverse": "have their reverse (t, r, h) in train",
    "implied": "follow from a subsumed relation in train",
    "linked": "have their entities linked in train, in any way",
    "unseen_entity": "have an entity that train has not",
    "unseen_relation": "have a relation that train has not",
    "loop": "have one entity as head and tail",
    "blank_node": "have a blank node",
}
"""What may be said of a triple, and the words for it."""

NOT_OF_TRAIN = ("repeated", "unseen_entity", "unseen_relation")


def findings(
    graph: KnowledgeGraph, found: Relations, progress: Progress
) -> dict[str, dict[str, Flags]]:
    """Return for each split which of its triples [n] each finding is about."""
    index = pair_index(graph.train, len(graph.entities))
    blank = blank_nodes(graph)
    result = {}
    for split in SPLITS:
        triples = graph.split(split)
        report = partial(progress, f"comparing {split} with train")
        head, _, tail = triples.T
        flags = _in_training(triples, index, found, report)
        earlier = SPLITS[: SPLITS.index(split)]
        flags["repeated"] = stand_in(graph, earlier, triples)
        for name, columns, size in (
            ("unseen_entity", [0, 2], len(graph.entities)),
            ("unseen_relation", [1], len(graph.relations)),
        ):
            seen = np.zeros(size, dtype=bool)
            seen[graph.train[:, columns]] = True
            flags[name] = np.any(~seen[triples[:, columns]], axis=1)
        flags["loop"] = head == tail
        flags["blank_node"] = blank[head] | blank[tail]
        result[split] = {name: flags[name] for name in FINDINGS}
    return result


def _in_training(
    triples: Ids, index: AnswerIndex, found: Relations, report: Callable[[int, int], None]
) -> dict[str, Flags]:
    """Say of each triple [n] which other triples of its two entities training has."""
    names = ("inverse", "twin", "reverse", "implied", "linked")
    flags = {name: np.zeros(len(triples), dtype=bool) for name in names}
    relations = len(found.graph.relations)
    equal, implying = (np.sort(rows.codes()) for rows in (found.equal, found.contained))
    loop = triples[:, 0] == triples[:, 2]
    for turned, row, other in shared_pairs(index, triples, report):
        own = triples[row, 1].astype(np.int64)
        # The triple itself, which is its own reverse if it is a loop, is no other triple.
        another = (own != other) | (turned & ~loop[row])
        row, own, other = row[another], own[another], other[another]
        same = is_in(equal, code(own, other, turned, relations))
        flags["linked"][row] = True
        flags["inverse" if turned else "twin"][row[same]] = True
        flags["implied"][row[is_in(implying, code(other, own, turned, relations))]] = True
        if turned:
            flags["reverse"][row[own == other]] = True
    flags["leaking"] = flags["inverse"] | flags["twin"]
    return flags


def blank_nodes(graph: KnowledgeGraph) -> Flags:
    """Say of each entity [|E|] whether it is a blank node of RDF."""
    return np.array([name.startswith("_:") for name in graph.entities], dtype=bool)


def stand_in(graph: KnowledgeGraph, splits: tuple[str, ...], triples: Ids) -> Flags:
    """Say of each triple [n] whether one of some splits has it."""
    found = np.zeros(len(triples), dtype=bool)
    head, relation, tail = triples.T
    for split in splits:
        h, r, t = graph.split(split).T
        index = AnswerIndex.build(h, r, t, len(graph.relations))
        found |= index.holds(head, relation, tail, len(graph.entities))
    return found
