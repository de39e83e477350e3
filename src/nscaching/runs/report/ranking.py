"""The one ranking of held-out triples that all results of a page come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nscaching.evaluation.ranking import Queries, Ranks, breakdown, rank
from nscaching.data.index import Ids, Side

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["Ranking", "held_out"]


@dataclass(frozen=True)
class Ranking:
    """Ranks of the triples of a split, and what they amount to."""

    split: str
    triples: Ids
    ranks: dict[Side, Ranks]
    figures: dict[str, Any]
    """Overall, by mapping class and by relation."""


def held_out(run: Run, progress: Callable[[int, int], None] | None = None) -> Ranking | None:
    """Rank test, or else validation, unless training has just done so; None without triples."""
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
