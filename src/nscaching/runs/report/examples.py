"""Questions of held-out triples, with the model's first answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.evaluation.classify import score_triples
from nscaching.data.index import Side
from nscaching.evaluation.predict import predict
from nscaching.runs.report.markup import badge, name, number, score, section
from nscaching.runs.report.ranking import Ranking

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["examples", "question", "varied"]

EACH = 3
"""Questions that were answered right, and that were not."""

TOP = 5
"""Answers that are shown."""

LOOKED_AT = 1000
"""Triples among which different relations are looked for."""


def examples(run: Run, ranking: Ranking) -> str:
    """Return some questions chosen by seed: first ones with the right answer first, then others."""
    random = np.random.default_rng(run.config.seed)
    sides, triples = list(Side), ranking.triples
    rank = np.stack([ranking.ranks[side].resolve("realistic") for side in sides])  # [2, n]
    cards = []
    for right in (True, False):
        which = random.permutation(np.flatnonzero((rank == 1) == right))[:LOOKED_AT]
        for place in varied(which, triples[which % len(triples), 1], EACH):
            side, row = divmod(place, len(triples))
            cards.append(_card(run, sides[side], triples[row].tolist(), rank[side, row]))
    hint = (
        f"Questions of held-out triples, chosen by seed: up to {EACH} that have the right answer "
        f"first, then up to {EACH} that do not. How often it is first, the results above say. "
        "Answers go by score; a dash stands before those that are known to be true from "
        "elsewhere, which do not count."
    )
    return section("Example predictions", hint, f'<div class="cards">\n{"".join(cards)}</div>\n')


def varied(places: Iterable[int], relations: Iterable[int], count: int) -> list[int]:
    """Choose the first places whose relations differ, then of the others as many as are missing."""
    seen: dict[int, int] = {}
    pairs = [(int(place), int(relation)) for place, relation in zip(places, relations, strict=True)]
    for place, relation in pairs:
        seen.setdefault(relation, place)
    first = list(seen.values())[:count]
    return first + [place for place, _ in pairs if place not in first][: count - len(first)]


def question(run: Run, side: Side, anchor: int, relation: int) -> str:
    """Return (head, relation, ?) or (?, relation, tail) with names."""
    given = name(run.graph.label(anchor), 48)
    asked = name(run.graph.relation_label(relation), 48)
    words = (given, asked, "?") if side is Side.TAIL else ("?", asked, given)
    return "({})".format(", ".join(words))


def _card(run: Run, side: Side, triple: list[int], rank: float) -> str:
    """Return the first answers to one question of a triple, and the right one wherever it is."""
    head, relation, tail = triple
    anchor, answer = side.query(head, tail)
    asked = {"head" if side is Side.TAIL else "tail": run.graph.entities[anchor]}
    asked["relation"] = run.graph.relations[relation]
    found = predict(run.model, run.graph, **asked, top=TOP, known="mark")["answers"]
    rows, place, right = [], 0, run.graph.entities[answer]
    for one in found:
        known = one["known"] if one["name"] != right else ""
        place += not known
        rows.append(_row("–" if known else str(place), one, known, one["name"] == right))
    if all(one["name"] != right for one in found):
        value = float(score_triples(run.model, np.array([triple], dtype=np.int32))[0])
        one = {"label": run.graph.label(answer), "score": value}
        rows.append(_row(number(rank), one, "", True))
    verdict = badge("right", "good") if rank == 1 else badge(f"rank {number(rank)}", "bad")
    title = f"<h3>{question(run, side, anchor, relation)} {verdict}</h3>"
    return f'<article>{title}\n<ul class="answers">\n{"".join(rows)}</ul></article>\n'


def _row(place: str, one: dict[str, Any], known: str, right: bool) -> str:
    note = badge("the answer", "good") if right else badge(f"in {known}") if known else ""
    kind = "right" if right else "known" if known else ""
    label, value = name(one["label"], 60), f"<output>{score(one['score'])}</output>"
    return f'<li class="{kind}"><b>{place}</b><span>{label} {note}</span>{value}</li>\n'
