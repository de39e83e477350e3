"""What trivial rules score in filtered ranking, so that a model's MRR can be read against it.

``repeat``: an answer that another training triple of the same two entities gives, by a relation
that in training mostly goes with the one asked for: its inverse, its twin, itself if symmetric.
``frequent``: the most frequent answers of the relation. ``both``: ``repeat``, then ``frequent``.
Rules see training triples only; answers that a rule does not name are all equal, and last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nscaching.audit.overlaps import LEAST, PIECE, Flags, Overlaps, Progress, overlaps, pieces
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Longs, Side
from nscaching.data.sorting import counted_out, is_in, places
from nscaching.evaluation.ranks import Ranks, metrics

RULES = {
    "repeat": "repeat the inverse, twin or reverse",
    "frequent": "most frequent answers of the relation",
    "both": "repeat first, then most frequent",
}
MOSTLY = 0.5  # share of the pairs of a relation that must have the other relation too


def scores(graph: KnowledgeGraph, progress: Progress) -> dict[str, dict[str, Any]]:
    """Return split → rule → metrics, with realistic ties, for the splits that are not empty."""
    entities, relations = len(graph.entities), len(graph.relations)
    implications = Implications.of(overlaps(graph.train, entities, relations, progress))
    found: dict[str, dict[str, Any]] = {}
    for split in ("valid", "test"):
        triples = graph.split(split)
        for done, rule in enumerate(RULES if len(triples) else ()):
            progress(f"trivial rules on {split}", done, len(RULES))
            repeat = implications if rule != "frequent" else None
            ranks = rank(graph, triples, repeat, frequent=rule != "repeat")
            both = np.concatenate([ranks[side].resolve("realistic") for side in Side])
            found.setdefault(split, {})[rule] = metrics(both)
    return found


@dataclass(frozen=True, eq=False)
class Implications:
    """Which relations imply a relation: source(h, t), or if turned source(t, h), gives r(h, t).

    Those of relation r are the rows ``offsets[r]:offsets[r + 1]``. A level is the place of the
    confidence among all confidences, from 1.
    """

    offsets: Longs  # [|R| + 1]
    source: Longs  # [n]
    turned: Flags  # [n]
    level: Longs  # [n]

    @classmethod
    def of(cls, known: Overlaps) -> Implications:
        known = known.where((known.common >= LEAST) & (known.share_of_first() >= MOSTLY))
        order = np.argsort(known.second, kind="stable")
        level = np.unique(known.share_of_first(), return_inverse=True)[1] + 1
        counts = np.bincount(known.second, minlength=len(known.sizes))
        offsets = np.append(0, np.cumsum(counts))
        return cls(offsets, known.first[order], known.turned[order], level[order])


def rank(
    graph: KnowledgeGraph, triples: Ids, repeat: Implications | None, frequent: bool
) -> dict[Side, Ranks]:
    """Rank both entities of each triple by the rules; filtered, as models are ranked.

    The triples must stand in a split of the graph.
    """
    head, relation, tail = triples.T
    return {
        side: _rank(graph, side, *side.query(head, tail), relation, repeat, frequent)
        for side in Side
    }


def _rank(
    graph: KnowledgeGraph,
    side: Side,
    anchor: Ids,
    answer: Ids,
    relation: Ids,
    repeat: Implications | None,
    frequent: bool,
) -> Ranks:
    """Count better and equal entities: all, without the known ones, with those a rule names.

    A score is level · (F + 1) + frequency, where F is the highest frequency.
    """
    entities, relations = len(graph.entities), len(graph.relations)
    index = graph.filter_index[side]
    # Each query once: many triples share one. Queries are numbered 0, 1, … here.
    used, query = np.unique(index.keys(anchor, relation), return_inverse=True)
    anchors, asked = np.divmod(index.codes[used], relations)
    row, known = index.spread(index.offsets[used], index.offsets[used + 1])
    known_codes = row * entities + known
    named, level = _named(graph, side, anchors, asked, repeat)
    frequency = Frequency(graph, side, frequent)
    width = (1 + int(level.max(initial=0))) * (1 + frequency.most)

    # Named entities that are known do not count; the others lose their score and get another.
    is_new = ~is_in(known_codes, named)
    named_of, named_entity = np.divmod(named[is_new], entities)
    of_named = frequency.of(asked[named_of], named_entity)
    of_known = frequency.of(asked[row], known)
    removed = Tally(np.append(row * width + of_known, named_of * width + of_named), width)
    score = level[is_new] * (1 + frequency.most) + of_named
    added = Tally(named_of * width + score, width)
    base = Tally(frequency.relation * width + frequency.counts, width)

    wanted = query * entities + answer
    place, there = places(named, wanted)
    true = np.where(there, level[place] if len(level) else 0, 0) * (1 + frequency.most)
    true += frequency.of(relation, answer)
    unseen = entities - np.bincount(frequency.relation, minlength=relations)[relation]
    above = base.above(relation, true) - removed.above(query, true) + added.above(query, true)
    equal = base.equal(relation, true) - removed.equal(query, true) + added.equal(query, true)
    equal += np.where(true == 0, unseen, 0)
    return Ranks(above + 1, above + equal + 1)


class Frequency:
    """How often an entity is an answer of a relation in training; 0 always if not ``on``."""

    def __init__(self, graph: KnowledgeGraph, side: Side, on: bool) -> None:
        head, relation, tail = graph.train.T
        _, answer = side.query(head, tail)
        self.entities = len(graph.entities)
        codes = relation.astype(np.int64) * self.entities + answer
        self.codes, self.counts = np.unique(codes if on else codes[:0], return_counts=True)
        self.relation = self.codes // self.entities
        self.most = int(self.counts.max(initial=0))

    def of(self, relation: Ids | Longs, entity: Ids | Longs) -> Longs:
        place, there = places(self.codes, relation.astype(np.int64) * self.entities + entity)
        return np.where(there, self.counts[place] if len(self.counts) else 0, 0)


class Tally:
    """Scores below ``width`` in groups, to count those above or equal to a score."""

    def __init__(self, codes: Longs, width: int) -> None:
        self.codes, self.width = np.sort(codes), width

    def above(self, group: Ids | Longs, score: Longs) -> Longs:
        code = group.astype(np.int64) * self.width
        end = np.searchsorted(self.codes, code + self.width)
        return end - np.searchsorted(self.codes, code + score, "right")

    def equal(self, group: Ids | Longs, score: Longs) -> Longs:
        code = group.astype(np.int64) * self.width + score
        right = np.searchsorted(self.codes, code, "right")
        return right - np.searchsorted(self.codes, code, "left")


def _named(
    graph: KnowledgeGraph, side: Side, anchors: Longs, asked: Longs, repeat: Implications | None
) -> tuple[Longs, Longs]:
    """Return query·|E| + entity, ascending, for what implications name, and its highest level."""
    codes, levels = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    if repeat is None:
        return codes[0], levels[0]
    entities = len(graph.entities)
    first, size = repeat.offsets[asked], np.diff(repeat.offsets)[asked]
    query, place = counted_out(size)
    implication = first[query] + place
    for turned in (False, True):
        mine = repeat.turned[implication] == turned
        ask, rows = query[mine], implication[mine]
        index = graph.train_index[side.other if turned else side]
        start, end = index.runs(anchors[ask].astype(np.int32), repeat.source[rows])
        for some in pieces(end - start, PIECE):
            row, entity = index.spread(start[some], end[some])
            code, level = ask[some][row] * entities + entity, repeat.level[rows[some][row]]
            parts = _highest(code, level)
            codes.append(parts[0])
            levels.append(parts[1])
    return _highest(np.concatenate(codes), np.concatenate(levels))


def _highest(codes: Longs, levels: Longs) -> tuple[Longs, Longs]:
    """Return each code once, ascending, with its highest level."""
    order = np.lexsort((levels, codes))
    codes, levels = codes[order], levels[order]
    last = np.append(codes[1:] != codes[:-1], True)[: len(codes)]
    return codes[last], levels[last]
