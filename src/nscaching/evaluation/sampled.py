"""Ranking among a sample of the entities, for graphs where all of them take too long."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.config import MOST
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import check_bounds
from nscaching.evaluation import ranking
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.ranking import Options, Progress, Queries
from nscaching.evaluation.ranks import Floats, Ranks, Ties, figures
from nscaching.kernels import Kernels, choose_kernels
from nscaching.kernels.standing import Asked
from nscaching.models import Model

# Peak bytes per query and candidate: ids and what makes them (32), scores (8), masks (8).
BYTES = 48
FEW = 64  # queries at least, where scoring copies the table of a small graph for each chunk


def is_whole(candidates: int, entities: int) -> bool:
    """Say whether a sample of so many candidates is the full ranking; 0 stands for that."""
    return not 0 < candidates < entities - 1


def evaluate(
    model: Model,
    graph: KnowledgeGraph,
    split: str = "test",
    candidates: int = 0,
    seed: int = 0,
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Rank a split among all entities, or among so many random other ones, and report the metrics.

    Sampled candidates belong to the seed; the report then has standard errors, and what the sample
    says of the full ranking. As many candidates as there are entities are the full ranking. The
    other options are those of ``ranking.evaluate``.
    """
    check_bounds("candidates", candidates, 0, MOST)
    check_bounds("seed", seed, 0, MOST)
    entities = len(graph.entities)
    if is_whole(candidates, entities):
        return ranking.evaluate(model, graph, split, **options)
    how, triples = Options(**options), ranking.non_empty(graph, split)
    device = model.entity.device
    queries = Queries(graph, triples, how.filtered, device)
    kernels = choose_kernels("auto", device)
    given: dict[str, Any] = {"budget": how.budget, "kernels": kernels, "progress": how.progress}
    ranks = rank_sampled(model, queries, candidates, seed, **given)
    said = {"split": split, **how.said(), "candidates": candidates, "seed": seed}
    said |= sampled_figures(ranks, candidates, entities, how.ties)
    return said | ranking.breakdown(graph, triples, ranks, how.ties)


@torch.no_grad()
def rank_sampled(
    model: Model,
    queries: Queries,
    candidates: int,
    seed: int,
    *,
    budget: int,
    kernels: Kernels,
    progress: Progress | None = None,
) -> dict[Side, Ranks]:
    """Rank the true head and tail of each triple among so many random other entities.

    Each query has a sample of its own, without repeats, a function of the seed, the place of the
    triple and the side. Known answers in it do not count, as in the full ranking.
    """
    few = max(FEW, model.entities // candidates)
    chunks = Chunks(max(1, min(few, budget // (BYTES * candidates), queries.most)))
    triple = torch.from_numpy(queries.order).to(model.entity.device)

    def count(side: Side, some: slice) -> Tensor:
        asked, number = queries.sides[side].part(some), 2 * triple[some] + (side is Side.TAIL)
        answer = asked.answer.unsqueeze(1)
        drawn = kernels.sample(model.entities - 1, candidates, seed, number)
        drawn += drawn >= answer  # of the other entities: the answer is left out
        return _count(model, side, asked, torch.cat([answer, drawn], dim=1))

    return ranking.rank_sides(count, queries, chunks, progress)


def _count(model: Model, side: Side, asked: Asked, candidates: Tensor) -> Tensor:
    """Count [3, n] the candidates [n, 1 + C] above the first, level with it, and non-finite."""
    scores = model.score_candidates(side, asked.anchor, asked.relation, candidates)
    counts = [(~scores.isfinite()).sum(1)]
    for compare in (torch.eq, torch.gt):
        rivals = compare(scores[:, 1:], scores[:, :1])
        if asked.known is not None:  # few are above: only those are looked up
            row, column = rivals.nonzero(as_tuple=True)
            entity = candidates[row, 1 + column]
            rivals[row, column] = ~asked.known.holds(row, entity)
        counts.append(rivals.sum(1))
    return torch.stack(counts[::-1])


def sampled_figures(
    ranks: dict[Side, Ranks], candidates: int, entities: int, ties: Ties
) -> dict[str, Any]:
    """Return standard errors of the metrics of a sample, and what they say of a full ranking.

    The two queries of a triple count as one observation. A full rank is estimated without bias, as
    1 + (rank − 1)·others/candidates, but no function of a sampled rank has the full reciprocal rank
    as its mean: of two that have, one has a mean that is never below, one a mean never above.
    """
    others = entities - 1
    sampled = [ranks[side].resolve(ties) for side in Side]
    full = [1 + (rank - 1) * (others / candidates) for rank in sampled]
    worst = np.concatenate([ranks[side].resolve("pessimistic") for side in Side])
    every = np.concatenate(full)
    # Without repeats, the mean of (C + 1)/(N + 1)/rank is 1/full rank times the chance that a
    # sample of C + 1 from N + 1 holds the answer or an entity above the answer.
    least = float(np.mean((candidates + 1) / (others + 1) / worst))
    return {
        "standard_error": _errors(sampled),
        "full_ranking": {
            "mr": float(np.mean(every)),
            "mr_standard_error": _errors(full)["mr"],
            "mrr_at_least": least,
            "mrr_at_most": float(np.mean(1 / every)),
        },
    }


def _errors(sides: list[Floats]) -> dict[str, float | None]:
    """Return the standard errors of the metrics, over triples; None where there is one triple."""
    n, each = len(sides[0]), [figures(ranks) for ranks in sides]
    means = {name: np.mean([side[name] for side in each], axis=0) for name in each[0]}
    return {
        name: float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None
        for name, values in means.items()
    }
