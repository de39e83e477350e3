"""Answers by name: to a triple with a gap, to a whole triple, and the neighbours of an entity."""

from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.config import check_type
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, check_bounds, flag
from nscaching.evaluation.calibration import Calibration
from nscaching.evaluation.classify import fitted_thresholds, score_triples
from nscaching.evaluation.labelled import has_validation, labelled_triples
from nscaching.evaluation.ranking import row_by_row
from nscaching.models import Model, finite

Known = Literal["hide", "mark"]
By = Literal["cosine", "distance"]


class Trained(Protocol):
    """What is asked: a model and its graph, such as a ``Run`` has."""

    model: Model
    graph: KnowledgeGraph

    def calibrated(self) -> Calibration | None:
        """Return what turns scores into probabilities; None without validation triples."""


def predict(
    run: Trained,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    known: Known = "hide",
    prior: float | None = None,
) -> dict[str, Any]:
    """Rank the answers to a triple with one gap, the most plausible first, or judge a whole triple.

    Known facts are left out, or with ``known="mark"`` shown with the split that holds them.
    ``prior`` is that of ``Calibration.probabilities``.
    """
    model, graph = run.model, run.graph
    if (head, relation, tail).count(None) > 1:
        raise UserError("give at least two of head, relation and tail")
    check_bounds("top", top, 1)
    check_type(flag("known"), Known, known)
    h, t = (None if name is None else graph.entity_id(name) for name in (head, tail))
    r = None if relation is None else graph.relation_id(relation)
    query = {
        "head": None if h is None else graph.label(h),
        "relation": None if r is None else graph.relation_label(r),
        "tail": None if t is None else graph.label(t),
    }
    if h is not None and r is not None and t is not None:
        judged = _judge(model, graph, h, r, t)
        likely = _add_probabilities(run, [judged], [r], prior)
        return query | judged | likely
    scores = finite(_scores(model, h, r, t))
    split_of = known_answers(graph, h, r, t)
    best = torch.argsort(scores, descending=True, stable=True)[: top + len(split_of)].tolist()
    if known == "hide":
        best = [candidate for candidate in best if candidate not in split_of]
    answers = [
        {
            "rank": rank,
            "name": graph.relations[candidate] if r is None else graph.entities[candidate],
            "label": graph.relation_label(candidate) if r is None else graph.label(candidate),
            "score": float(scores[candidate]),
            "known": split_of.get(candidate, ""),
        }
        for rank, candidate in enumerate(best[:top], 1)
    ]
    hidden = len(split_of) if known == "hide" else 0
    relations = best[:top] if r is None else [r] * len(answers)
    likely = _add_probabilities(run, answers, relations, prior)
    return query | likely | {"known_facts_left_out": hidden, "answers": answers}


def _add_probabilities(
    run: Trained, answers: list[dict[str, Any]], relations: list[int], prior: float | None
) -> dict[str, float | None]:
    """Add the probability to answers that have a score; return the prior. None: not known."""
    calibration = run.calibrated()
    if calibration is None:
        if prior is not None:
            what = "there are no validation triples to fit probabilities on"
            raise UserError(f"{flag('prior')} {prior}: {what}")
        for answer in answers:
            answer["probability"] = None
        return {"prior": None}
    scores = np.array([answer["score"] for answer in answers])
    chances = calibration.probabilities(scores, np.array(relations, np.int32), prior)
    for answer, chance in zip(answers, chances.tolist(), strict=True):
        answer["probability"] = chance
    return {"prior": calibration.prior if prior is None else prior}


@torch.no_grad()
def _scores(model: Model, h: int | None, r: int | None, t: int | None) -> Tensor:
    device = model.entity.device
    head, relation, tail = (torch.tensor([i or 0], device=device) for i in (h, r, t))
    if r is None:
        return model.score(head, torch.arange(model.own_relations, device=device), tail).cpu()
    side, anchor = (Side.HEAD, tail) if h is None else (Side.TAIL, head)
    return model.score_all(side, anchor, relation)[0].cpu()


def known_answers(
    graph: KnowledgeGraph, h: int | None, r: int | None, t: int | None
) -> dict[int, str]:
    """Return the known answers to a triple with one gap, and the split that holds each."""
    gap = [h, r, t].index(None)
    given = {column: value for column, value in enumerate((h, r, t)) if value is not None}
    found: dict[int, str] = {}
    for split in reversed(SPLITS):  # of several splits, the first one is named
        triples = graph.split(split)
        match = np.logical_and(*(triples[:, column] == given[column] for column in given))
        found |= dict.fromkeys(triples[match, gap].tolist(), split)
    return found


def _judge(model: Model, graph: KnowledgeGraph, h: int, r: int, t: int) -> dict[str, Any]:
    triple = np.array([[h, r, t]], dtype=np.int32)
    score = float(score_triples(model, triple)[0])
    threshold = plausible = None
    if has_validation(graph):
        fitted = fitted_thresholds(model, labelled_triples(graph, "valid"))
        threshold = float(fitted.of(triple[:, 1])[0])
        plausible = score >= threshold
    known = known_answers(graph, h, r, None).get(t, "")
    return {"score": score, "known": known, "threshold": threshold, "plausible": plausible}


def neighbours(run: Trained, name: str, top: int = 10, by: By = "cosine") -> dict[str, Any]:
    """Return the entities nearest to the one of a name or label, itself left out.

    By the cosine of the vectors, or by their Euclidean distance.
    """
    check_bounds("top", top, 1)
    check_type(flag("by"), By, by)
    model, graph = run.model, run.graph
    entity = graph.entity_id(name)
    mine = torch.tensor([entity], device=model.entity.device)

    def compare(some: Tensor) -> Tensor:
        own, rows = (model.entity_rows(ids).double() for ids in (mine, some))
        if by == "distance":
            distance: Tensor = torch.linalg.vector_norm(rows - own, dim=-1)
            return distance
        # Not a matrix product: that rounds a row by its place, and equal ones must stay equal.
        return (F.normalize(rows, dim=-1) * F.normalize(own, dim=-1)).sum(-1)

    found = row_by_row(model, np.arange(model.entities), compare, "entities")
    # Equally near entities in the order of their ids.
    order = np.argsort(found if by == "distance" else -found, kind="stable")
    nearest = order[order != entity][:top].tolist()
    return {
        "entity": graph.entities[entity],
        "label": graph.label(entity),
        "by": by,
        "neighbours": [
            {
                "rank": rank,
                "name": graph.entities[other],
                "label": graph.label(other),
                by: float(found[other]),
            }
            for rank, other in enumerate(nearest, 1)
        ],
    }
