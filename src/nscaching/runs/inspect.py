"""Show what the negative cache holds for one query, by name, at any recorded epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import Ids, Side
from nscaching.data.types import RelationType
from nscaching.errors import UserError, flag
from nscaching.evaluation.answers import known_answers
from nscaching.models import finite

if TYPE_CHECKING:
    from nscaching.runs.run import Run

LEAST = {"sample": 1, "top": 1, "seed": 0}
MOST_NAMED = 10  # names that an error offers


def inspect(
    run: Run,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    *,
    epoch: int | None = None,
    sample: int | None = None,
    top: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Show the cache of (head, relation, ?) or of (?, relation, tail) by name, best scores first.

    Without an epoch: the cache at the end of training. With ``sample`` or ``top``: some entities
    of every recorded epoch, drawn by seed or best by score. All scores are of the run's model.
    ``of_relation`` says whether an entity stands on the asked side of the relation in a training
    triple, that is whether the entity is of a fitting kind.
    """
    if relation is None or (head is None) == (tail is None):
        raise UserError(f"give {flag('relation')} and one of {flag('head')} and {flag('tail')}")
    _check_numbers(epoch=epoch, sample=sample, top=top, seed=seed)
    recorded = recorded_epochs(run)
    if not recorded:
        why = (
            "there is none in cache.safetensors, which a finished training run leaves, and no "
            f"snapshot; its sampler is {run.config.sampler}, and only samplers that keep a cache, "
            "such as nscaching, write one"
        )
        if not run.config.cache.n1:
            why = f"it was trained with {flag('n1')} 0"
        raise UserError(f"{run.name} holds no cache: {why}")
    side, given = (Side.HEAD, tail) if head is None else (Side.TAIL, head)
    query = CachedQuery(run, side, run.graph.entity_id(str(given)), run.graph.relation_id(relation))
    if epoch is not None and epoch not in recorded:
        raise UserError(f"epoch {epoch} is not recorded; known: {', '.join(map(str, recorded))}")
    chosen = recorded if sample or top else recorded[-1:]
    random = np.random.default_rng(seed)
    shown = []
    for number in chosen if epoch is None else [epoch]:
        cached: Ids = cache_at(run, number)[side][query.row].cpu().numpy()
        entities = distinct = np.unique(cached)
        if sample is not None and sample < len(distinct):
            entities = random.choice(distinct, sample, replace=False)
        counts = {
            "epoch": number,
            "slots": len(cached),
            "distinct": len(distinct),
            "known": len(query.known.keys() & distinct.tolist()),
            "of_relation": len(query.of_relation & set(distinct.tolist())),
        }
        shown.append(counts | {"entities": query.scored(entities)[:top]})
    return query.names | {"recorded": recorded, "epochs": shown}


def _check_numbers(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, int | np.integer):
            raise UserError(f"{flag(name)} takes a whole number, not {value!r}")
        if value is not None and value < LEAST.get(name, value):
            raise UserError(f"{flag(name)} must be at least {LEAST[name]}, not {value}")
    if given["sample"] is not None and given["top"] is not None:
        raise UserError(f"give {flag('sample')} or {flag('top')}, not both")


def recorded_epochs(run: Run) -> list[int]:
    """Return the epochs whose cache the run holds, the end of training last."""
    epochs = set(run.snapshots)
    if "head_cache" in run.sampler_state:
        trained = [int(record["epoch"]) for record in run.history if "split" not in record]
        epochs.add(max(trained or [run.best_epoch, *run.snapshots]))
    return sorted(epochs)


def cache_at(run: Run, epoch: int) -> dict[Side, Tensor]:
    """Return the cached entities [rows, N1] of each side at a recorded epoch."""
    state = run.snapshots.get(epoch, run.sampler_state)
    found = {side: state.get(f"{side.value}_cache", torch.empty(0)) for side in Side}
    rows = run.shared_rows or run.graph.train_index
    for side, cache in found.items():
        fits = cache.dim() == 2 and len(cache) == len(rows[side])
        fits = fits and cache.numel() > 0 and not cache.is_floating_point()
        if not fits or cache.min() < 0 or cache.max() >= len(run.graph.entities):
            raise UserError(f"{run.name}: its cache of epoch {epoch} does not fit the data")
    return found


class CachedQuery:
    """A query of training triples: (anchor, relation, ?) or (?, relation, anchor)."""

    def __init__(self, run: Run, side: Side, anchor: int, relation: int) -> None:
        self.run, self.side, self.anchor, self.relation = run, side, anchor, relation
        graph, rows = run.graph, run.graph.train
        h, t = side.query(anchor, None)  # which also turns (anchor, answer) into (head, tail)
        self.names = {
            "head": None if h is None else graph.label(h),
            "relation": graph.relation_label(relation),
            "tail": None if t is None else graph.label(t),
        }
        gap, ids = (0, (0, relation, anchor)) if side is Side.HEAD else (2, (anchor, relation, 0))
        columns = np.array(ids, dtype=np.int32).reshape(3, 1)
        self.known = known_answers(graph, gap, columns)[0]  # with the split of each
        anchors, relations = (np.array([number], np.int32) for number in (anchor, relation))
        self.of_relation = set(RelationType.of(rows, relation).entities(side).tolist())
        self.key = int(graph.train_index[side].keys(anchors, relations)[0])
        if self.key < 0:
            raise self._no_key()
        self.row, shared = self.key, run.shared_rows
        if shared:
            self.row = int(shared[side].find(*map(torch.tensor, ([anchor], [relation])))[0])

    def _no_key(self) -> UserError:
        graph, rows = self.run.graph, self.run.graph.train
        column, _ = self.side.query(0, 2)  # of the anchor in a triple
        relations = np.unique(rows[rows[:, column] == self.anchor, 1])
        known = [graph.relation_label(i) for i in relations]
        what = f"relations of {graph.label(self.anchor)}"
        if not known:
            anchors = np.unique(rows[rows[:, 1] == self.relation, column])
            known = [graph.label(i) for i in anchors]
            what = f"{('heads', '', 'tails')[column]} of {self.names['relation']}"
        query = ", ".join("?" if name is None else name for name in self.names.values())
        named = ", ".join(known[:MOST_NAMED] + ["…"] * (len(known) > MOST_NAMED)) or "none"
        return UserError(f"({query}) has no cache: no training triple fits; {what} there: {named}")

    @torch.no_grad()
    def scored(self, entities: Ids) -> list[dict[str, Any]]:
        """Return entities by name with their scores, the best answers first."""
        graph, model = self.run.graph, self.run.model
        anchor, relation = torch.tensor([[self.anchor], [self.relation]]).to(model.entity.device)
        candidates = torch.from_numpy(entities).long().to(anchor.device).unsqueeze(0)
        scores = finite(model.score_candidates(self.side, anchor, relation, candidates))[0].cpu()
        order = np.argsort(-scores.numpy(), kind="stable")
        return [
            {
                "name": graph.entities[entity],
                "label": graph.label(entity),
                "score": score,
                "known": self.known.get(entity, ""),
                "of_relation": entity in self.of_relation,
            }
            for entity, score in zip(entities[order].tolist(), scores[order].tolist(), strict=True)
        ]
