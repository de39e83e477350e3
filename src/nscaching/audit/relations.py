"""What kind a relation is: how many answers its queries have, and what other relations repeat it.

All triples count, whatever their split: this is about the data, not about what can be learned.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.audit.overlaps import LEAST, SAME, Flags, Floats, Overlaps
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import AnswerIndex, Longs, Side
from nscaching.data.prefixes import Prefixes

NEARLY = 0.95  # share of heads with one tail, or of triples with one answer, that is nearly all

KINDS = {
    "symmetric": "its pairs stand in it both ways",
    "inverse": "another relation has nearly the same pairs, turned",
    "twin": "another relation has nearly the same pairs",
    "subsumed": "another relation has nearly all of its pairs, or of its pairs turned",
    "functional": "nearly every head has one tail",
    "inverse functional": "nearly every tail has one head",
    "constant": "nearly all triples have the same tail, or the same head",
    "plumbing": "RDF needs it to write lists, shapes and the like",
}


@dataclass(frozen=True, eq=False)
class Answers:
    """How many answers the queries for one side have, by relation [|R|].

    Of the queries (h, r, ?) the answers are tails.
    """

    queries: Longs  # distinct anchors
    answers: Longs  # distinct answers
    single: Floats  # share of the queries with one answer
    commonest: Longs  # the most frequent answer, −1 without triples
    share: Floats  # share of the triples with that answer


@dataclass(frozen=True, eq=False)
class Relations:
    """The kinds of all relations of a graph."""

    graph: KnowledgeGraph
    triples: Longs  # [|R|] of all splits, each once
    by_side: dict[Side, Answers]
    equal: Overlaps  # of inverses and twins; in both orders
    contained: Overlaps  # first is subsumed by second
    reversed_share: Floats  # [|R|] share of the pairs whose reverse stands in the relation too
    kinds: dict[str, Flags]  # kind → [|R|]

    def of(self, relation: int) -> list[str]:
        return [kind for kind, flags in self.kinds.items() if flags[relation]]

    def counterparts(self, relation: int) -> list[dict[str, Any]]:
        """Return the relations that repeat a relation, those with most common pairs first."""
        found = []
        for rows, names in ((self.equal, ("twin", "inverse")), (self.contained, ("subsumed",) * 2)):
            mine = rows.of(relation)
            shares = zip(mine.share_of_first(), mine.share_of_second(), strict=True)
            for i, (of_first, of_second) in enumerate(shares):
                found.append(
                    {
                        "kind": names[int(mine.turned[i])],
                        "relation": self.graph.relations[mine.second[i]],
                        "label": self.graph.relation_label(int(mine.second[i])),
                        "turned": bool(mine.turned[i]),
                        "common": int(mine.common[i]),
                        "share": float(of_first),
                        "share_of_other": float(of_second),
                    }
                )
        return sorted(found, key=lambda each: -each["common"])

    def to_dict(self, relation: int) -> dict[str, Any]:
        """Return all that is known about one relation."""
        graph, tails, heads = self.graph, self.by_side[Side.TAIL], self.by_side[Side.HEAD]
        tph, hpt = (float(mean[relation]) for mean in graph.cardinality)
        return {
            "name": graph.relations[relation],
            "label": graph.relation_label(relation),
            "triples": int(self.triples[relation]),
            "heads": int(tails.queries[relation]),
            "tails": int(heads.queries[relation]),
            "tails_per_head": tph,
            "heads_per_tail": hpt,
            "class": graph.mapping_classes[relation],
            "kinds": self.of(relation),
            "reversed": float(self.reversed_share[relation]),
            "one_tail": float(tails.single[relation]),
            "one_head": float(heads.single[relation]),
            "commonest_tail": _commonest(graph, tails, relation),
            "commonest_head": _commonest(graph, heads, relation),
            "counterparts": self.counterparts(relation),
        }


def _commonest(graph: KnowledgeGraph, answers: Answers, relation: int) -> dict[str, Any] | None:
    entity = int(answers.commonest[relation])
    if entity < 0:
        return None
    share = float(answers.share[relation])
    return {"name": graph.entities[entity], "label": graph.label(entity), "share": share}


def relations(graph: KnowledgeGraph, known: Overlaps) -> Relations:
    """Find the kinds of all relations, given the overlaps of all triples."""
    count = len(graph.relations)
    by_side = {
        side: _answers(index, graph.filter_index[side.other], count)
        for side, index in graph.filter_index.items()
    }
    index = graph.filter_index[Side.TAIL]
    triples = np.bincount(index.codes % count, np.diff(index.offsets), count).astype(np.int64)
    own = known.where((known.first == known.second) & known.turned)
    others = known.where(known.first != known.second)
    reversed_share = np.zeros(count)
    reversed_share[own.first] = own.share_of_first()
    equal, contained = others.where(others.equal()), others.where(others.contained())
    tails, heads = by_side[Side.TAIL], by_side[Side.HEAD]
    enough = triples >= LEAST
    kinds = {
        "symmetric": (reversed_share >= SAME) & (known.sizes >= LEAST),
        "inverse": _marked(equal.first[equal.turned], count),
        "twin": _marked(equal.first[~equal.turned], count),
        "subsumed": _marked(contained.first, count),
        "functional": (tails.single >= NEARLY) & (tails.queries >= LEAST),
        "inverse functional": (heads.single >= NEARLY) & (heads.queries >= LEAST),
        "constant": (np.maximum(tails.share, heads.share) >= NEARLY) & enough,
        "plumbing": np.array([is_plumbing(name) for name in graph.relations], dtype=bool),
    }
    return Relations(graph, triples, by_side, equal, contained, reversed_share, kinds)


def _marked(relations: Longs, count: int) -> Flags:
    return np.bincount(relations, minlength=count) > 0


def _answers(index: AnswerIndex, opposite: AnswerIndex, count: int) -> Answers:
    """Describe the answers of an index; each key of ``opposite`` is one answer of a relation."""
    relation, sizes = index.codes % count, np.diff(index.offsets)
    queries = np.bincount(relation, minlength=count)
    single = np.bincount(relation, sizes == 1, count) / np.maximum(queries, 1)
    entity, of_relation = np.divmod(opposite.codes, count)
    frequency = np.diff(opposite.offsets)
    order = np.lexsort((-entity, frequency, of_relation))  # of equals, the first entity last
    last = np.append(np.diff(of_relation[order]) > 0, True)[: len(order)]
    top, commonest, share = order[last], np.full(count, -1), np.zeros(count)
    commonest[of_relation[top]] = entity[top]
    totals = np.bincount(of_relation, frequency, count)
    share[of_relation[top]] = frequency[top] / totals[of_relation[top]]
    answers = np.bincount(of_relation, minlength=count)
    return Answers(queries, answers, single, commonest, share)


_LISTED = tomllib.loads(Path(__file__).with_name("plumbing.toml").read_text(encoding="utf-8"))
_NAMES, _NAMESPACES = frozenset(_LISTED["names"]), frozenset(_LISTED["namespaces"])
_PREFIXES = Prefixes()


def is_plumbing(name: str) -> bool:
    """Say whether a relation, an IRI or a short form of one, is plumbing of RDF."""
    short = _PREFIXES.shorten(name)
    prefix, colon, _ = short.partition(":")
    member = re.fullmatch(r"rdf:_[0-9]+", short) is not None
    return member or short in _NAMES or (colon == ":" and prefix in _NAMESPACES)
