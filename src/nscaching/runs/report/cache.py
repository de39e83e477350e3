"""The negative cache of a few queries, before and after training."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.evaluation.predict import known_answers
from nscaching.probes.files import Snapshots
from nscaching.runs.inspect import cache_at, recorded_epochs, scored
from nscaching.runs.report.examples import LOOKED_AT, question, varied

if TYPE_CHECKING:
    from nscaching.runs.run import Run

KEYS = 4
SHOWN = 6
"""Entities of a cache row that are shown."""


def cache(run: Run) -> dict[str, Any]:
    """Return the cache of the queries of some training triples; empty for a run without a cache.

    Each query has a row of its cache at the start and at the last recorded epoch; ``missing``
    says why a row is not shown.
    """
    if run.path is not None:  # where training has written them by now
        run = dataclasses.replace(run, snapshots=Snapshots(run.path))
    epochs = recorded_epochs(run)
    if not epochs:
        return {}
    cards = [_card(run.graph, side, key) for side, key in _keys(run)]
    missing = [] if 0 in epochs else ["The start was not recorded (--snapshots 0 does that)."]
    for epoch in sorted({0, epochs[-1]}.intersection(epochs)):
        try:
            found = cache_at(run, epoch)
        except UserError as reason:
            missing.append(f"Not shown: {reason}.")
            continue
        title = f"after epoch {epoch:,}" if epoch else "before"
        for card in cards:
            card["rows"][title] = _row(run, card, found[card["side"]][card["key"]])
    return {"cards": [card for card in cards if card["rows"]], "missing": missing}


def _keys(run: Run) -> list[tuple[Side, int]]:
    """Choose queries of training triples by seed, of different relations and both sides."""
    random = np.random.default_rng(run.config.seed)
    rows = random.permutation(len(run.graph.train))[:LOOKED_AT]
    chosen = varied(rows, run.graph.train[rows, 1], KEYS)
    sides = [(Side.TAIL, Side.HEAD)[i % 2] for i in range(len(chosen))]
    keys = run.graph.train_keys
    return [(side, int(keys[side][row])) for side, row in zip(sides, chosen, strict=True)]


def _card(graph: KnowledgeGraph, side: Side, key: int) -> dict[str, Any]:
    """Return a query with its known answers, and no rows yet."""
    anchor, relation = divmod(int(graph.train_index[side].codes[key]), len(graph.relations))
    head, tail = (anchor, None) if side is Side.TAIL else (None, anchor)
    known = set(known_answers(graph, head, relation, tail))  # of all splits
    return {
        "side": side,
        "key": key,
        "query": (anchor, relation),
        "known": known,
        "question": question(graph, side, anchor, relation),
        "true": [graph.label(entity) for entity in sorted(known)[:SHOWN]],
        "more_true": max(0, len(known) - SHOWN),
        "rows": {},
    }


def _row(run: Run, card: dict[str, Any], ids: Tensor) -> dict[str, Any]:
    """Return the entities of a cache row that score highest, each once."""
    anchor, relation = card["query"]
    entities = np.unique(ids.cpu().numpy())
    entities, scores = scored(run.model, card["side"], anchor, relation, entities)
    best = zip(entities[:SHOWN].tolist(), scores[:SHOWN].tolist(), strict=True)
    return {
        "distinct": len(entities),
        "mean": float(scores.mean()),
        "first": [
            {"label": run.graph.label(entity), "known": entity in card["known"], "score": score}
            for entity, score in best
        ],
    }
