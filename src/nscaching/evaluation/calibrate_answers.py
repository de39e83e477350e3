"""Fits how often the best answers to a query are right, on the queries of validation triples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, distinct
from nscaching.evaluation.answers import Question, known_answers
from nscaching.evaluation.calibration import AnswerChances, Calibration
from nscaching.evaluation.classify import Truth
from nscaching.evaluation.logistic_fit import most_likely
from nscaching.evaluation.ranks import Floats
from nscaching.evaluation.shortlist import Evidence, Scores, candidates

MOST_QUERIES = 1000  # of each gap
MOST_SCORES = 50_000_000  # of each gap, as far as LEAST_QUERIES allow
LEAST_QUERIES = 200
MOST_OF_ALL = 2_000_000_000  # scores of each gap: of 86 million entities, a query takes seconds
TOP = 10  # answers of a query
LEAST = 10  # right answers, and wrong ones
RIDGE = 1.0


class Judged(NamedTuple):
    """The best answers [k] to queries of one gap, and which of them are right."""

    evidence: Evidence
    right: Truth
    queries: int


def fit_answers(
    scores: Scores, graph: KnowledgeGraph, calibration: Calibration
) -> dict[int, AnswerChances]:
    """Return the chances by gap: a head, a relation or a tail; without those of too few triples."""
    found = {}
    for gap in range(3):
        judged = judged_answers(scores, graph, "valid", gap)
        if min(judged.right.sum(), (~judged.right).sum()) >= LEAST:
            odds = calibration.log_odds(judged.evidence.score, judged.evidence.relation)
            found[gap] = fit_chances(odds, judged)
    return found


def fit_chances(odds: Floats, judged: Judged) -> AnswerChances:
    """Fit on the log-odds [k] of answers; evidence that speaks the wrong way is not used."""
    evidence, target = judged.evidence, judged.right.astype(np.float64)
    relations, group = np.unique(evidence.relation, return_inverse=True)
    parts = np.stack([odds, -evidence.log_rank, evidence.log_share], axis=1)
    used = np.ones(3, dtype=bool)
    while True:
        fitted, offsets = most_likely(parts[:, used], target, group, RIDGE)
        if (fitted[1:] >= 0).all():
            break
        used[used] = fitted[1:] >= 0
    weights = np.zeros(3)
    weights[used] = fitted[1:]
    by_relation = dict(zip(relations.tolist(), offsets.tolist(), strict=True))
    by_odds, by_rank, by_share = weights.tolist()
    return AnswerChances(float(fitted[0]), by_odds, -by_rank, by_share, by_relation, judged.queries)


def judged_answers(
    scores: Scores, graph: KnowledgeGraph, split: str, gap: int, seed: int = 0
) -> Judged:
    """Answer the queries of a split's triples, chosen by seed, as if the split were not known."""
    asked = graph.split(split).copy()
    asked[:, gap] = 0
    asked = distinct(asked)
    width = len(graph.relations if gap == 1 else graph.entities)
    count = max(LEAST_QUERIES, min(MOST_QUERIES, MOST_SCORES // width))
    count = min(count, max(1, MOST_OF_ALL // width))
    asked = asked[np.sort(np.random.default_rng(seed).permutation(len(asked))[:count])]
    parts = list(_judge(scores, graph, split, gap, asked)) if len(asked) else []
    if not parts:
        none = np.zeros(0)
        empty = Evidence(none, none.astype(np.int32), none, none)
        return Judged(empty, none.astype(bool), 0)
    columns = zip(*(evidence for evidence, _ in parts), strict=True)
    evidence = Evidence(*(np.concatenate(column) for column in columns))
    return Judged(evidence, np.concatenate([right for _, right in parts]), len(asked))


def _judge(
    scores: Scores, graph: KnowledgeGraph, split: str, gap: int, asked: Ids
) -> Iterator[tuple[Evidence, Truth]]:
    question = Question(graph, asked.T, gap, many=True)
    facts = known_answers(graph, gap, question.ids)
    known = [{answer for answer, where in row.items() if where != split} for row in facts]
    for row, some in enumerate(candidates(scores, question, known)):
        best = some.best(TOP)
        right = [facts[row].get(answer) == split for answer in best]
        yield some.evidence(best, known[row]), np.array(right, dtype=bool)
