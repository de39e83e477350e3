"""What else a model is asked, beside ranking entities and judging triples; each task by name."""

from __future__ import annotations

from typing import Any

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, unknown
from nscaching.evaluation import classify as classification
from nscaching.evaluation import ranking as evaluation
from nscaching.evaluation.entities import classify_entities
from nscaching.evaluation.linking import link_entities
from nscaching.evaluation.neighbours import neighbours
from nscaching.evaluation.relations import evaluate_relations
from nscaching.models import Model

__all__ = ["classify", "evaluate", "neighbours"]

EVALUATIONS = {"links": evaluation.evaluate, "relations": evaluate_relations}
CLASSIFICATIONS = {"entities": classify_entities, "linking": link_entities}
TRIPLES = "triples"


def evaluate(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    task: str = "links",
    **options: Any,  # noqa: ANN401  (those of ``evaluation.evaluate``)
) -> dict[str, Any]:
    """Rank a split: the entities of its triples ("links") or their relations."""
    if task not in EVALUATIONS:
        raise unknown("task", task, EVALUATIONS)
    return EVALUATIONS[task](model, graph, split, **options)


def classify(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    task: str = TRIPLES,
    relation: str | None = None,
) -> dict[str, Any]:
    """Tell true from false triples, or with a relation: what entities are, which are the same."""
    if task not in (TRIPLES, *CLASSIFICATIONS):
        raise unknown("task", task, (TRIPLES, *CLASSIFICATIONS))
    if task == TRIPLES:
        if relation is not None:
            raise UserError(
                f"{flag('relation')} {relation!r} needs {flag('task')} entities or linking"
            )
        return classification.classify(model, graph, split)
    if relation is None:
        count = len(graph.relations)
        names = [graph.relation_label(i) for i in range(min(12, count))] + ["…"] * (count > 12)
        some = ", ".join(names)
        raise UserError(f"{flag('task')} {task} needs a {flag('relation')}, one of {some}")
    return CLASSIFICATIONS[task](model, graph, graph.relation_id(relation), split)
