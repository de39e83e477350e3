"""What the negative cache holds for one query, by name, at any epoch that was kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.errors import UserError, flag
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Side
from nscaching.models import Model, finite
from nscaching.evaluation.predict import known_answers

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["cache_at", "inspect", "recorded_epochs"]

MOST_NAMED = 10
"""How many names an error offers."""


def inspect(
    run: Run,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    epoch: int | None = None,
    sample: int | None = None,
    top: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Show the cache of (head, relation, ?) or of (?, relation, tail), best scores first.

    Without an epoch it is the cache at the end of training; with ``sample`` or ``top``, some
    entities of every epoch that was kept: drawn by seed, or best by score. All scores are those of
    the run's model. ``of_relation``: those entities that stand on the asked side of the relation
    in some training triple, which are of a fitting kind.
    """
    if relation is None or (head is None) == (tail is None):
        raise UserError(f"give {flag('relation')} and one of {flag('head')} and {flag('tail')}")
    _check(epoch, sample, top, seed)
    recorded = recorded_epochs(run)
    epochs = _chosen(recorded, epoch, everything=sample is None and top is None)
    graph, side = run.graph, Side.HEAD if head is None else Side.TAIL
    anchor, r = graph.entity_id(str(tail if head is None else head)), graph.relation_id(relation)
    key = _key(graph, side, anchor, r)
    h, t = (anchor, None) if side is Side.TAIL else (None, anchor)
    split_of, random, shown = known_answers(graph, h, r, t), np.random.default_rng(seed), []
    place = 0 if side is Side.HEAD else 2  # of the answer in a triple
    of_relation = set(graph.train[graph.train[:, 1] == r, place].tolist())
    for number in epochs:
        cached: Ids = cache_at(run, number)[side][key].cpu().numpy()
        entities = distinct = np.unique(cached)
        if sample is not None and sample < len(distinct):
            entities = random.choice(distinct, sample, replace=False)
        scores = _scores(run.model, side, anchor, r, entities)
        order = np.argsort(-scores, kind="stable")[:top]
        shown.append(
            {
                "epoch": number,
                "slots": len(cached),
                "distinct": len(distinct),
                "known": sum(entity in split_of for entity in distinct.tolist()),
                "of_relation": len(of_relation.intersection(distinct.tolist())),
                "entities": [
                    {**entry, "of_relation": entity in of_relation}
                    for entity, entry in _entries(graph, entities[order], scores[order], split_of)
                ],
            }
        )
    return {
        "head": None if h is None else graph.label(h),
        "relation": graph.relation_label(r),
        "tail": None if t is None else graph.label(t),
        "recorded": recorded,
        "epochs": shown,
    }


def _entries(
    graph: KnowledgeGraph, entities: Ids, scores: npt.NDArray[np.float32], split_of: dict[int, str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    for entity, score in zip(entities.tolist(), scores.tolist(), strict=True):
        names = {"name": graph.entities[entity], "label": graph.label(entity)}
        yield entity, {**names, "score": score, "known": split_of.get(entity, "")}


def _chosen(recorded: list[int], epoch: int | None, everything: bool) -> list[int]:
    """Return the epochs to show: of one, all its entities; of several, some of each."""
    if epoch is None:
        return recorded[-1:] if everything else recorded
    if epoch not in recorded:
        raise UserError(f"epoch {epoch} is not recorded; known: {', '.join(map(str, recorded))}")
    return [epoch]


def _check(epoch: int | None, sample: int | None, top: int | None, seed: int) -> None:
    given = {flag("epoch"): epoch, flag("sample"): sample, flag("top"): top, flag("seed"): seed}
    for name, value in given.items():
        if value is not None and not isinstance(value, int | np.integer):
            raise UserError(f"{name} takes a whole number, not {value!r}")
    if sample is not None and top is not None:
        raise UserError(f"give {flag('sample')} or {flag('top')}, not both")
    for name, value in ((flag("sample"), sample), (flag("top"), top)):
        if value is not None and value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
    if seed < 0:
        raise UserError(f"{flag('seed')} must be at least 0, not {seed}")


def recorded_epochs(run: Run) -> list[int]:
    """Return the epochs whose cache was kept; the last is that of the end."""
    final = [_last_epoch(run)] if "head_cache" in run.sampler_state else []
    recorded = sorted({*run.snapshots, *final})
    if not recorded and run.config.sampler == "nscaching":
        raise UserError(
            f"{run.name} holds no cache: there is none in cache.safetensors, which a finished "
            "training leaves, and no snapshot"
        )
    if not recorded:
        raise UserError(
            f"{run.name} holds no cache: its sampler is {run.config.sampler}; known: nscaching"
        )
    return recorded


def _last_epoch(run: Run) -> int:
    epochs = [int(record["epoch"]) for record in run.history if "split" not in record]
    return max(epochs or [run.best_epoch, *run.snapshots])


def cache_at(run: Run, epoch: int) -> dict[Side, Tensor]:
    """Return the entities [keys, N1] of each side that a recorded epoch had."""
    state = run.snapshots.get(epoch, run.sampler_state)
    found = {side: state.get(f"{side.value}_cache", torch.empty(0)) for side in Side}
    for side, cache in found.items():
        fits = cache.dim() == 2 and len(cache) == len(run.graph.train_index[side])
        if not fits or not cache.numel() or cache.is_floating_point():
            raise UserError(f"{run.name}: its cache of epoch {epoch} does not fit the data")
        if cache.min() < 0 or cache.max() >= len(run.graph.entities):
            raise UserError(f"{run.name}: its cache of epoch {epoch} does not fit the names")
    return found


def _key(graph: KnowledgeGraph, side: Side, anchor: int, relation: int) -> int:
    """Return the key of a query, or say which queries of that entity or relation there are."""
    ids = (np.array([number], np.int32) for number in (anchor, relation))
    key = int(graph.train_index[side].keys(*ids)[0])
    if key >= 0:
        return key
    name, rows = graph.label(anchor), graph.train
    place = 2 if side is Side.HEAD else 0  # of the anchor in a triple
    asked = graph.relation_label(relation)
    query = f"(?, {asked}, {name})" if side is Side.HEAD else f"({name}, {asked}, ?)"
    known = [graph.relation_label(i) for i in np.unique(rows[rows[:, place] == anchor, 1])]
    what = f"relations of {name} there"
    if not known:
        known = [graph.label(i) for i in np.unique(rows[rows[:, 1] == relation, place])]
        what = f"{'tails' if side is Side.HEAD else 'heads'} of {asked} there"
    named = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    raise UserError(f"{query} has no cache: no training triple fits; {what}: {named or 'none'}")


@torch.no_grad()
def _scores(
    model: Model, side: Side, anchor: int, relation: int, entities: Ids
) -> npt.NDArray[np.float32]:
    """Return the scores of some entities as answers to a query."""
    device = model.entity.device
    query = torch.tensor([[anchor], [relation]], device=device)
    candidates = torch.from_numpy(entities).long().to(device).unsqueeze(0)
    scores = finite(model.score_candidates(side, query[0], query[1], candidates))
    found: npt.NDArray[np.float32] = scores[0].cpu().numpy()
    return found
