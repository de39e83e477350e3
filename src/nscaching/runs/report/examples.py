"""Questions of held-out triples, with the model's first answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.evaluation.classify import score_triples
from nscaching.evaluation.predict import predict
from nscaching.runs.report.markup import number
from nscaching.runs.report.results import Ranking

if TYPE_CHECKING:
    from nscaching.runs.run import Run

EACH = 3
"""Questions with the right answer first, and questions with another one first."""

TOP = 5
"""Answers that are shown."""

LOOKED_AT = 1000
"""Triples among which different relations are looked for."""


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
            cards.append(_card(run, sides[side], triples[row].tolist(), float(rank[side, row])))
    return cards


def varied(places: Iterable[int], relations: Iterable[int], count: int) -> list[int]:
    """Choose the first place of each relation, then the first other places, ``count`` in all."""
    seen: dict[int, int] = {}
    pairs = [(int(place), int(relation)) for place, relation in zip(places, relations, strict=True)]
    for place, relation in pairs:
        seen.setdefault(relation, place)
    first = list(seen.values())[:count]
    return first + [place for place, _ in pairs if place not in first][: count - len(first)]


def question(
    graph: KnowledgeGraph, side: Side, anchor: int, relation: int
) -> tuple[str | None, str, str | None]:
    """Return the labels of (head, relation, tail); None stands for the entity asked for."""
    given, asked = graph.label(anchor), graph.relation_label(relation)
    return (given, asked, None) if side is Side.TAIL else (None, asked, given)


def _card(run: Run, side: Side, triple: list[int], rank: float) -> dict[str, Any]:
    """Return the first answers to a question, and the right answer wherever it ranks."""
    graph, (head, relation, tail) = run.graph, triple
    anchor, answer = side.query(head, tail)
    asked = {"head" if side is Side.TAIL else "tail": graph.entities[anchor]}
    asked["relation"] = graph.relations[relation]
    answers = predict(run.model, graph, **asked, top=TOP, known="mark")["answers"]
    place = 0
    for one in answers:
        one["right"] = one["name"] == graph.entities[answer]
        counts = one["right"] or not one["known"]  # other true answers do not count
        place += counts
        one["place"] = place if counts else "–"
    if not any(one["right"] for one in answers):
        score = float(score_triples(run.model, np.array([triple], dtype=np.int32))[0])
        right = {"label": graph.label(answer), "score": score, "known": "", "right": True}
        answers.append(right | {"place": number(rank)})
    return {
        "question": question(graph, side, anchor, relation),
        "rank": rank,
        "answers": answers,
    }
