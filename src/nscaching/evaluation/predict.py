"""Answers by name: to a triple with a gap, to a whole triple, and the neighbours of an entity."""

from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.config import check_type
from nscaching.data.frames import Passed
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import check_bounds, flag
from nscaching.evaluation.answers import Answers, Known, Question, ask, known_answers
from nscaching.evaluation.calibration import Calibration, add_probabilities
from nscaching.evaluation.classify import fitted_thresholds, score_triples
from nscaching.evaluation.labelled import has_validation, labelled_triples
from nscaching.evaluation.ranking import row_by_row
from nscaching.evaluation.ranks import Floats
from nscaching.evaluation.torch_scores import TorchScores
from nscaching.models import Model

By = Literal["cosine", "distance"]


class Trained(Protocol):
    """What is asked: a model and its graph, such as a ``Run`` has."""

    model: Model
    graph: KnowledgeGraph

    def calibrated(self) -> Calibration | None:
        """Return what turns scores into probabilities; None without validation triples."""


def predict(
    run: Trained,
    head: Passed = None,
    relation: Passed = None,
    tail: Passed = None,
    top: int = 10,
    known: Known = "hide",
    any_type: bool = False,
    prior: float | None = None,
) -> Answers:
    """Rank the answers to a triple with one gap, the most plausible first, or judge a whole triple.

    ``head``, ``relation`` and ``tail`` are a name each, or many: ``predict(frame["head"], "in")``
    asks a query for each. The entities that the relation has on the asked side in training go
    first; ``of_relation`` tells them from the others. The entity of the query is no answer if the
    relation has no loops in training. With ``any_type`` the scores alone decide.

    Known facts are left out, or with ``known="mark"`` shown with the split that holds them.
    The probability of an answer is how often such an answer to a validation query was right; with
    a ``prior`` it is that of ``Calibration.probabilities``.
    """
    question = Question.read(run.graph, head, relation, tail)
    if question.gap is None:
        return _judge(run, question, prior)
    likely = run.calibrated(), prior
    return ask(TorchScores(run.model), question, top, known, any_type, likely)


def _judge(run: Trained, question: Question, prior: float | None) -> Answers:
    model, graph = run.model, run.graph
    triples = question.ids.T
    scores = score_triples(model, triples)
    thresholds = None
    if has_validation(graph):
        fitted = fitted_thresholds(model, labelled_triples(graph, "valid"))
        thresholds = fitted.of(triples[:, 1])
    facts = known_answers(graph, 2, question.ids)
    rows, queries = [], []
    for row, (score, known, tail) in enumerate(zip(scores, facts, triples[:, 2], strict=True)):
        threshold = None if thresholds is None else float(thresholds[row])
        judgement = {
            "score": float(score),
            "known": known.get(int(tail), ""),
            "threshold": threshold,
            "plausible": None if threshold is None else bool(score >= threshold),
        }
        likely = add_probabilities(run.calibrated(), [judgement], triples[row, 1:2], prior)
        queries.append(question.labels(row) | judgement | likely)
        rows += question.rows(row, [judgement])
    return Answers(rows, queries)


def score(run: Trained, triples: Passed) -> Floats:
    """Return the scores [n] of triples, given as ``KnowledgeGraph.from_triples`` takes them."""
    return score_triples(run.model, run.graph.ids(triples))


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
