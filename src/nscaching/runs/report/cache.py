"""The negative cache of a few queries, before and after training."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.probes.files import Snapshots
from nscaching.runs.inspect import CachedQuery, cache_at, recorded_epochs
from nscaching.runs.report.results import LOOKED_AT, varied

if TYPE_CHECKING:
    from nscaching.runs.run import Run

QUERIES = 4
SHOWN = 6
"""Entities of a cache row that are shown, and known answers."""


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
    queries = _queries(run)
    rows: list[dict[str, Any]] = [{} for _ in queries]  # by title
    missing = [] if 0 in epochs else ["The start was not recorded (--snapshots 0 does that)."]
    for epoch in sorted({0, epochs[-1]}.intersection(epochs)):
        try:
            found = cache_at(run, epoch)
        except UserError as reason:
            missing.append(f"Not shown: {reason}.")
            continue
        for query, mine in zip(queries, rows, strict=True):
            entities = np.unique(found[query.side][query.key].cpu().numpy())
            mine[f"after epoch {epoch:,}" if epoch else "before"] = query.scored(entities)
    cards = []
    for query, mine in zip(queries, rows, strict=True):
        true = [run.graph.label(entity) for entity in sorted(query.known)[:SHOWN]]
        cards.append(query.names | {"true": true, "known": len(query.known), "rows": mine})
    return {"cards": [card for card in cards if card["rows"]], "missing": missing, "shown": SHOWN}


def _queries(run: Run) -> list[CachedQuery]:
    """Choose queries of training triples by seed, of different relations and both sides."""
    triples = run.graph.train
    rows = np.random.default_rng(run.config.seed).permutation(len(triples))[:LOOKED_AT]
    queries = []
    for i, row in enumerate(varied(rows, triples[rows, 1], QUERIES)):
        side = (Side.TAIL, Side.HEAD)[i % 2]
        head, relation, tail = triples[row].tolist()
        queries.append(CachedQuery(run, side, side.query(head, tail)[0], relation))
    return queries
