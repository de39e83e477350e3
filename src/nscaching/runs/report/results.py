"""The ranking of the held-out triples, which all results of a page come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nscaching.data.index import Ids, Side
from nscaching.evaluation.ranking import Queries, Ranks, breakdown, rank
from nscaching.runs.report.markup import name

if TYPE_CHECKING:
    from nscaching.runs.run import Run

FIRST = 25
"""Relations that are shown at once."""

MOST = 1000
"""Relations that are listed at all."""

CLASSES = {
    "1-1": "one head, one tail",
    "1-N": "many tails of a head",
    "N-1": "many heads of a tail",
    "N-N": "many of both",
    "unseen": "not in training",
}


@dataclass(frozen=True)
class Ranking:
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


def relations(run: Run, ranking: Ranking) -> dict[str, Any]:
    """Return table rows (name, remark, metrics) by mapping class and by relation."""
    figures, labels = ranking.figures, run.graph.labels
    by_class = [(kind, CLASSES[kind], found) for kind, found in figures["by_class"].items()]
    largest = sorted(figures["by_relation"].items(), key=lambda item: -item[1]["triples"])
    listed = [
        (name(labels.get(relation, relation), 100), found["class"], found)
        for relation, found in largest[:MOST]
    ]
    return {
        "by_class": [("all", "", figures), *by_class],
        "first": listed[:FIRST],
        "more": listed[FIRST:],
        "left_out": len(largest) - len(listed),
    }
