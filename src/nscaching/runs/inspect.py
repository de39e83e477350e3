"""Show what the negative cache holds for one query, by name, at any recorded epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Ids, Side
from nscaching.errors import UserError, flag
from nscaching.evaluation.predict import known_answers
from nscaching.models import Model, finite

if TYPE_CHECKING:
    from nscaching.runs.run import Run

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

    Without an epoch: the cache at the end of training. With ``sample`` or ``top``: some entities
    of every recorded epoch, drawn by seed or best by score. All scores are of the run's model.
    ``of_relation`` says whether an entity stands on the asked side of the relation in a training
    triple, that is whether the entity is of a fitting kind.
    """
    if relation is None or (head is None) == (tail is None):
        raise UserError(f"give {flag('relation')} and one of {flag('head')} and {flag('tail')}")
    _check(epoch, sample, top, seed)
    recorded = recorded_epochs(run)
    if not recorded:
        raise UserError(
            f"{run.name} holds no cache: there is none in cache.safetensors, which a finished "
            f"training run leaves, and no snapshot; its sampler is {run.config.sampler}, and only "
            "samplers that keep a cache, such as nscaching, write one"
        )
    graph, side = run.graph, Side.HEAD if head is None else Side.TAIL
    anchor, r = graph.entity_id(str(tail if head is None else head)), graph.relation_id(relation)
    key = _key(graph, side, anchor, r)
    h, t = (anchor, None) if side is Side.TAIL else (None, anchor)
    split_of, random, shown = known_answers(graph, h, r, t), np.random.default_rng(seed), []
    column = 0 if side is Side.HEAD else 2  # of the answer in a triple
    of_relation = set(graph.train[graph.train[:, 1] == r, column].tolist())
    for number in _chosen(recorded, epoch, everything=sample is None and top is None):
        cached: Ids = cache_at(run, number)[side][key].cpu().numpy()
        entities = distinct = np.unique(cached)
        if sample is not None and sample < len(distinct):
            entities = random.choice(distinct, sample, replace=False)
        best, scores = (found[:top] for found in scored(run.model, side, anchor, r, entities))
        shown.append(
            {
                "epoch": number,
                "slots": len(cached),
                "distinct": len(distinct),
                "known": sum(entity in split_of for entity in distinct.tolist()),
                "of_relation": len(of_relation.intersection(distinct.tolist())),
                "entities": [
                    {
                        "name": graph.entities[entity],
                        "label": graph.label(entity),
                        "score": score,
                        "known": split_of.get(entity, ""),
                        "of_relation": entity in of_relation,
                    }
                    for entity, score in zip(
                        best[:top].tolist(), scores[:top].tolist(), strict=True
                    )
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


def _check(epoch: int | None, sample: int | None, top: int | None, seed: int) -> None:
    given = {flag("epoch"): epoch, flag("sample"): sample, flag("top"): top, flag("seed"): seed}
    for name, value in given.items():
        if value is not None and not isinstance(value, int | np.integer):
            raise UserError(f"{name} takes a whole number, not {value!r}")
    if sample is not None and top is not None:
        raise UserError(f"give {flag('sample')} or {flag('top')}, not both")
    for name, least in ((flag("sample"), 1), (flag("top"), 1), (flag("seed"), 0)):
        value = given[name]
        if value is not None and value < least:
            raise UserError(f"{name} must be at least {least}, not {value}")


def _chosen(recorded: list[int], epoch: int | None, everything: bool) -> list[int]:
    """Return the epochs to show: one epoch with all its entities, or several with some of each."""
    if epoch is None:
        return recorded[-1:] if everything else recorded
    if epoch not in recorded:
        raise UserError(f"epoch {epoch} is not recorded; known: {', '.join(map(str, recorded))}")
    return [epoch]


def recorded_epochs(run: Run) -> list[int]:
    """Return the epochs whose cache the run holds, the end of training last."""
    epochs = set(run.snapshots)
    if "head_cache" in run.sampler_state:
        trained = [int(record["epoch"]) for record in run.history if "split" not in record]
        epochs.add(max(trained or [run.best_epoch, *run.snapshots]))
    return sorted(epochs)


def cache_at(run: Run, epoch: int) -> dict[Side, Tensor]:
    """Return the cached entities [keys, N1] of each side at a recorded epoch."""
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
    """Return the key of a query, or name queries of the same entity or relation that have one."""
    ids = (np.array([number], np.int32) for number in (anchor, relation))
    key = int(graph.train_index[side].keys(*ids)[0])
    if key >= 0:
        return key
    name, rows = graph.label(anchor), graph.train
    column = 2 if side is Side.HEAD else 0  # of the anchor in a triple
    asked = graph.relation_label(relation)
    query = f"(?, {asked}, {name})" if side is Side.HEAD else f"({name}, {asked}, ?)"
    known = [graph.relation_label(i) for i in np.unique(rows[rows[:, column] == anchor, 1])]
    what = f"relations of {name} there"
    if not known:
        known = [graph.label(i) for i in np.unique(rows[rows[:, 1] == relation, column])]
        what = f"{'tails' if side is Side.HEAD else 'heads'} of {asked} there"
    named = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    raise UserError(f"{query} has no cache: no training triple fits; {what}: {named or 'none'}")


@torch.no_grad()
def scored(
    model: Model, side: Side, anchor: int, relation: int, entities: Ids
) -> tuple[Ids, npt.NDArray[np.float32]]:
    """Return entities, the best answers to a query first, and their scores."""
    device = model.entity.device
    query = torch.tensor([[anchor], [relation]], device=device)
    candidates = torch.from_numpy(entities).long().to(device).unsqueeze(0)
    scores = finite(model.score_candidates(side, query[0], query[1], candidates))
    found: npt.NDArray[np.float32] = scores[0].cpu().numpy()
    order = np.argsort(-found, kind="stable")
    return entities[order], found[order]
