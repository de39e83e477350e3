"""The ranking of the held-out triples, which all results of a page and the examples come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nscaching.data.index import Ids, Longs, Side
from nscaching.evaluation.classify import score_triples
from nscaching.evaluation.ranking import Queries, Ranks, breakdown, rank
from nscaching.runs.report.markup import number

if TYPE_CHECKING:
    from nscaching.runs.run import Run

MOST_RELATIONS = 1000  # that are listed
EACH = 3  # questions with the right answer first, and questions with another one first
TOP = 5  # answers that are shown
LOOKED_AT = 1000  # triples among which different relations are looked for


class Ranking(NamedTuple):
    """The ranks of the triples of a split, and their metrics."""

    split: str
    triples: Ids
    ranks: dict[Side, Ranks]
    figures: dict[str, Any]
    """Metrics overall, by mapping class and by relation."""


def held_out(run: Run, progress: Callable[[int, int], None] | None = None) -> Ranking | None:
    """Rank the test triples, or else the validation triples; None if there are neither."""
    graph = run.graph
    split = "test" if len(graph.test) else "valid"
    triples = graph.split(split)
    if not len(triples):
        return None
    ranks = run.test_ranks if split == "test" else None
    if ranks is None:
        queries = Queries(graph, triples, device=run.model.entity.device)
        ranks = rank(run.model, queries, progress=progress)
    return Ranking(split, triples, ranks, breakdown(graph, triples, ranks))


def examples(run: Run, ranking: Ranking) -> list[dict[str, Any]]:
    """Return questions chosen by seed: first those with the right answer first, then others."""
    random = np.random.default_rng(run.config.seed)
    sides, triples = list(Side), ranking.triples
    rank = np.stack([ranking.ranks[side].resolve("realistic") for side in sides])  # [2, n]
    cards = []
    for right in (True, False):
        which = random.permutation(np.flatnonzero((rank == 1) == right))[:LOOKED_AT]
        for place in varied(which, triples[which % len(triples), 1], EACH):
            side, row = divmod(place, len(triples))
            cards.append(_example(run, sides[side], triples[row].tolist(), float(rank[side, row])))
    return cards


def varied(places: Sequence[int] | Longs, relations: Sequence[int] | Ids, count: int) -> list[int]:
    """Choose the first place of each relation, then the first other places, ``count`` in all."""
    _, first = np.unique(relations, return_index=True)
    others = np.setdiff1d(np.arange(len(places)), first)
    return [int(places[i]) for i in (*np.sort(first), *others)[:count]]


def _example(run: Run, side: Side, triple: list[int], rank: float) -> dict[str, Any]:
    """Return the first answers to a question, and the right answer wherever it ranks."""
    graph, (head, relation, tail) = run.graph, triple
    anchor, answer = side.query(head, tail)
    given = {"head" if side is Side.TAIL else "tail": graph.entities[anchor]}
    found = run.predict(**given, relation=graph.relations[relation], top=TOP, known="mark")
    place = 0
    for one in found["answers"]:
        one["right"] = one["name"] == graph.entities[answer]
        counts = one["right"] or not one["known"]  # other true answers do not count
        place += counts
        one["place"] = place if counts else "–"
    if not any(one["right"] for one in found["answers"]):
        score = float(score_triples(run.model, np.array([triple], dtype=np.int32))[0])
        right = {"label": graph.label(answer), "score": score, "known": "", "right": True}
        found["answers"].append(right | {"place": number(rank)})
    return found | {"rank": rank}
