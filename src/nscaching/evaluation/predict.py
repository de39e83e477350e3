"""Answers by name: any two of head, relation and tail; or the truth of all three."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag, unknown
from nscaching.evaluation.classify import fit_thresholds, labelled_triples, score_triples
from nscaching.models import Model, finite

__all__ = ["Answer", "known_answers", "predict"]

Known = Literal["hide", "mark"]


@dataclass(frozen=True)
class Answer:
    """One candidate for what was asked, the most plausible first."""

    rank: int
    name: str
    label: str
    score: float
    known: str
    """The split in which the triple stands already; empty when it is new."""


def predict(
    model: Model,
    graph: KnowledgeGraph,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    known: Known = "hide",
) -> dict[str, Any]:
    """Rank the answers to a triple with one gap, or judge a whole triple.

    Known facts are left out, or with ``known="mark"`` shown with the split they stand in.
    """
    given = [name for name in (head, relation, tail) if name is not None]
    if len(given) < 2:
        raise UserError("give at least two of head, relation and tail")
    if top < 1:
        raise UserError(f"{flag('top')} must be at least 1, not {top}")
    if known not in get_args(Known):
        raise unknown(f"value of {flag('known')}:", known, get_args(Known))
    h = None if head is None else graph.entity_id(head)
    r = None if relation is None else graph.relation_id(relation)
    t = None if tail is None else graph.entity_id(tail)
    query = {
        "head": None if h is None else graph.label(h),
        "relation": None if r is None else graph.relation_label(r),
        "tail": None if t is None else graph.label(t),
    }
    if h is not None and r is not None and t is not None:
        return query | _judge(model, graph, h, r, t)
    scores = finite(_scores(model, h, r, t))
    split_of = known_answers(graph, h, r, t)
    answers: list[Answer] = []
    order = torch.argsort(scores, descending=True, stable=True)
    for best in order[: top + len(split_of)].tolist():
        if len(answers) == top:
            break
        if known == "hide" and best in split_of:
            continue
        name = graph.relations[best] if r is None else graph.entities[best]
        label = graph.relation_label(best) if r is None else graph.label(best)
        place = len(answers) + 1
        answers.append(Answer(place, name, label, float(scores[best]), split_of.get(best, "")))
    hidden = len(split_of) if known == "hide" else 0
    return query | {"known_facts_left_out": hidden, "answers": [asdict(a) for a in answers]}


@torch.no_grad()
def _scores(model: Model, h: int | None, r: int | None, t: int | None) -> torch.Tensor:
    """Score every candidate for the gap."""

    def ids(*values: int) -> torch.Tensor:
        return torch.tensor(values, device=model.entity.device)

    if r is None:
        assert h is not None
        assert t is not None
        return model.score(ids(h), ids(*range(model.relations)), ids(t)).cpu()
    side, anchor = (Side.HEAD, t) if h is None else (Side.TAIL, h)
    assert anchor is not None
    return model.score_all(side, ids(anchor), ids(r))[0].cpu()


def known_answers(
    graph: KnowledgeGraph, h: int | None, r: int | None, t: int | None
) -> dict[int, str]:
    """Return candidate → split for the triples that stand in the graph already."""
    gap = [h, r, t].index(None)
    found: dict[int, str] = {}
    for split in reversed(SPLITS):  # a triple in several splits is said to be of the first
        triples = graph.split(split)
        match = np.ones(len(triples), dtype=bool)
        for column, value in enumerate((h, r, t)):
            if value is not None:
                match &= triples[:, column] == value
        found |= dict.fromkeys(triples[match, gap].tolist(), split)
    return found


def _judge(model: Model, graph: KnowledgeGraph, h: int, r: int, t: int) -> dict[str, Any]:
    """Score one triple and hold it against the threshold of its relation."""
    triple = np.array([[h, r, t]], dtype=np.int32)
    score = float(score_triples(model, triple)[0])
    known = [split for split in SPLITS if (graph.split(split) == triple).all(axis=1).any()]
    judged: dict[str, Any] = {"score": score, "known": known[0] if known else ""}
    if not len(graph.valid) and "valid" not in graph.labelled:
        return judged | {"threshold": None, "plausible": None}
    valid = labelled_triples(graph, "valid")
    scores = score_triples(model, valid.triples)
    thresholds = fit_thresholds(scores, valid.truth, valid.triples[:, 1])
    threshold = float(thresholds.of(np.array([r], dtype=np.int32))[0])
    return judged | {"threshold": threshold, "plausible": score >= threshold}
