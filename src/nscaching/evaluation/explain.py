"""Why a triple is predicted: similar facts, paths, and what the score owes to training facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.frames import PARTS
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Longs, distinct
from nscaching.errors import DIVERGED, Diverged, UserError, check_bounds, flag
from nscaching.evaluation.answers import Question, known_answers
from nscaching.evaluation.chunks import Chunks
from nscaching.evaluation.classify import score_triples
from nscaching.evaluation.fact_losses import SmallModel, draw_rivals, fact_losses
from nscaching.evaluation.paths import PathKind, path_kinds
from nscaching.evaluation.ranking import chunk_size, row_by_row
from nscaching.evaluation.ranks import Floats
from nscaching.kernels.cpu.threads import torch_settings
from nscaching.models import Model

MOST_FACTS = 5000  # of head and of tail whose influence is estimated; of more, drawn by seed
STEP = 1e-4  # length of the change of parameters whose effect on a fact's loss is measured

Slopes = Sequence[tuple[Tensor, Tensor]]  # tables, and the slopes of a score by their numbers


class Trained(Protocol):
    """What is asked: a model, its graph and its settings, such as a ``Run`` has."""

    model: Model
    graph: KnowledgeGraph
    config: TrainConfig


@torch_settings(1)  # the work is in small parts: threads would wait for each other
def explain(
    run: Trained,
    head: str,
    relation: str,
    tail: str,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return the training facts that speak for a triple, given by names, labels or ids.

    - ``similar``: facts of the same relation between entities whose vectors are near;
    - ``paths``: paths of up to three steps from head to tail, and how often such a path comes with
      the relation in training;
    - ``facts``: facts of the head, of the tail and of the above, by their influence: how much the
      score would fall without them, to first order. Influences compare facts; their unit is not the
      score's.

    At most ``top`` of each. The triple itself is left out; ``known`` names the split that holds it.
    ``progress`` receives (kinds of paths counted, kinds in all).
    """
    check_bounds("top", top, 1)
    graph = run.graph
    for part, given in zip(PARTS, (head, relation, tail), strict=True):
        if not isinstance(given, str | int | np.integer) or given == "":
            raise UserError(f"explain needs a whole triple: {flag(part)} is missing")
    question = Question.read(graph, head, relation, tail)
    triple = question.ids[:, 0]
    score = float(score_triples(run.model, triple[None])[0])
    near, nearness = similar_facts(run.model, graph, triple, top)
    h, r, t = triple.tolist()
    paths = path_kinds(graph, h, r, t, progress)[:top]
    own = facts_of(graph, triple)
    on_paths = [path_facts(kind, len(graph.relations)) for kind in paths]
    rows = distinct(np.concatenate([own, near, *on_paths]).astype(np.int32))
    found = influences(run, triple, rows)
    of = dict(zip(map(tuple, rows.tolist()), found.tolist(), strict=True))

    def fact(row: Ids) -> dict[str, Any]:
        names = {part: question.label(i, int(row[i])) for i, part in enumerate(question.labels(0))}
        return {**names, "influence": of[tuple(row.tolist())]}

    return {
        **question.labels(0),
        "score": score,
        "known": known_answers(graph, 2, question.ids)[0].get(int(triple[2]), ""),
        "similar": [
            {**fact(row), "nearness": float(value)}
            for row, value in zip(near, nearness, strict=True)
        ],
        "paths": [
            described(kind, graph) | {"facts": [fact(row) for row in some]}
            for kind, some in zip(paths, on_paths, strict=True)
        ],
        "facts": [fact(rows[i]) for i in np.argsort(-found, kind="stable")[:top]],
        "facts_compared": len(rows),
    }


def facts_of(graph: KnowledgeGraph, triple: Ids) -> Ids:
    """Return the training facts of head and tail [n, 3], without the triple itself."""
    head, _, tail = triple
    ends = graph.train[:, [0, 2]]
    rows = np.flatnonzero(((ends == head) | (ends == tail)).any(1))
    rows = rows[(graph.train[rows] != triple).any(1)]
    if len(rows) > MOST_FACTS:
        rows = np.random.default_rng(0).permutation(rows)[:MOST_FACTS]
    found: Ids = graph.train[np.sort(rows)]
    return found


def similar_facts(model: Model, graph: KnowledgeGraph, triple: Ids, top: int) -> tuple[Ids, Floats]:
    """Return the facts of the relation between the nearest entities, and how near they are.

    Nearness is the mean of two cosines: of the vectors of both heads, and of both tails.
    """
    facts = graph.train[graph.train[:, 1] == triple[1]]
    facts = facts[(facts != triple).any(1)]
    total = np.zeros(len(facts))
    for place in (0, 2):
        entities, row = np.unique(facts[:, place], return_inverse=True)
        total += _cosines(model, int(triple[place]), entities.astype(np.int64))[row] / 2
    order = np.argsort(-total, kind="stable")[:top]
    return facts[order], total[order]


def _cosines(model: Model, entity: int, others: Longs) -> Floats:
    mine = F.normalize(
        model.entity_rows(torch.tensor([entity], device=model.entity.device)), dim=-1
    )

    def compare(some: Tensor) -> Tensor:
        return (F.normalize(model.entity_rows(some), dim=-1) * mine).sum(-1)

    return row_by_row(model, others, compare, "entities")


def path_facts(kind: PathKind, relations: int) -> Ids:
    """Return the facts [L, 3] of a kind's example, in the order of the path."""
    steps = zip(kind.example, kind.steps, kind.example[1:], strict=False)
    rows = [(a, s, b) if s < relations else (b, s - relations, a) for a, s, b in steps]
    return np.array(rows, dtype=np.int32)


def described(kind: PathKind, graph: KnowledgeGraph) -> dict[str, Any]:
    count = len(graph.relations)
    steps = [
        {"relation": graph.relation_label(step % count), "inverse": step >= count}
        for step in kind.steps
    ]
    figures = {"support": kind.support, "pairs": kind.pairs, "confidence": kind.confidence}
    starts = {"starts": kind.starts, "starts_in_all": kind.starts_in_all}
    return {"steps": steps, "paths": kind.paths, **figures, **starts}


def influences(run: Trained, triple: Ids, facts: Ids) -> Floats:
    """Estimate for each fact [n] how much the score of a triple would fall without it.

    To first order, a step of training on a fact z changes the parameters by −∇L(z), and the score f
    by −∇f·∇L(z): that is what the score would lose. The product is the slope of L(z) along ∇f,
    measured by two losses, so that one pass over the facts serves all of them.
    """
    if not len(facts):
        return np.zeros(0)
    small = SmallModel.around(run.model, np.concatenate([facts, triple[None]]), torch.float64)
    tables = list(small.model.parameters())
    for table in tables:
        table.requires_grad_()
    score = small.model.score(*small.columns(triple[None])).sum()
    given = torch.autograd.grad(score, tables, allow_unused=True)
    for table in tables:
        table.requires_grad_(False)
    slopes = [(t, slope) for t, slope in zip(tables, given, strict=True) if slope is not None]
    length = torch.stack([slope.square().sum() for _, slope in slopes]).sum().sqrt().item()
    step = STEP / max(length, STEP)
    # +STEP, then −STEP, then back to where the parameters were.
    ahead, behind = (_moved_losses(run, small, slopes, by, facts) for by in (step, -2 * step))
    found = (behind - ahead) / (2 * step)
    if not np.isfinite(found).all():
        raise Diverged(DIVERGED)
    return found


def _moved_losses(run: Trained, small: SmallModel, slopes: Slopes, by: float, facts: Ids) -> Floats:
    """Move the parameters along their slopes, and return the losses of facts [n] there."""
    for table, slope in slopes:
        table.add_(slope, alpha=by)
    rivals = draw_rivals(small.model, torch.Generator().manual_seed(0))

    def work(some: slice) -> Tensor:
        return fact_losses(small.model, run.config, small.columns(facts[some]), rivals)

    chunks = Chunks(min(len(facts), chunk_size(small.model) // 2 + 1), "facts")
    parts = [loss for _, loss in chunks.over(len(facts), work)]
    found: Floats = torch.cat(parts).numpy()
    return found
