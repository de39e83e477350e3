"""The negative cache of a few queries, before and after training."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.evaluation.predict import known_answers
from nscaching.probes.files import Snapshots
from nscaching.runs.inspect import cache_at, recorded_epochs, scored
from nscaching.runs.report.examples import LOOKED_AT, question, varied

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["cache"]

KEYS = 4
SHOWN = 6
"""Entities of a cache row that are shown."""


def cache(run: Run) -> dict[str, Any]:
    """Return the cache of the queries of some training triples; empty for a run without a cache."""
    if run.path is not None:  # where training has written them by now
        run = dataclasses.replace(run, snapshots=Snapshots(run.path))
    epochs = recorded_epochs(run)
    if not epochs:
        return {}
    random = np.random.default_rng(run.config.seed)
    rows = random.permutation(len(run.graph.train))[:LOOKED_AT]
    chosen = varied(rows, run.graph.train[rows, 1], KEYS)
    sides = [(Side.TAIL, Side.HEAD)[i % 2] for i in range(len(chosen))]
    keys = [
        (side, int(run.graph.train_keys[side][row]))
        for side, row in zip(sides, chosen, strict=True)
    ]
    kept, missing = _kept(run, epochs, keys)
    cards = [
        _card(run, side, key, {title: rows[i] for title, rows in kept.items()})
        for i, (side, key) in enumerate(keys)
    ]
    return {"cards": cards if kept else [], "missing": missing}


def _kept(
    run: Run, epochs: list[int], keys: list[tuple[Side, int]]
) -> tuple[dict[str, list[Tensor]], list[str]]:
    """Return the cache rows of some keys at the start and at the last recorded epoch.

    The second value says what is missing.
    """
    asked = {"before": 0} if 0 in epochs else {}
    if epochs[-1] > 0:
        asked[f"after epoch {epochs[-1]:,}"] = epochs[-1]
    kept, missing = {}, []
    if 0 not in epochs:
        missing.append("The start was not recorded (--snapshots 0 does that).")
    for title, epoch in asked.items():
        try:
            found = cache_at(run, epoch)
        except UserError as reason:
            missing.append(f"Not shown: {reason}.")
        else:
            kept[title] = [found[side][key] for side, key in keys]
    return kept, missing


def _card(run: Run, side: Side, key: int, kept: dict[str, Tensor]) -> dict[str, Any]:
    graph, index = run.graph, run.graph.train_index[side]
    anchor, relation = divmod(int(index.codes[key]), index.relations)
    head, tail = (anchor, None) if side is Side.TAIL else (None, anchor)
    known = set(known_answers(graph, head, relation, tail))  # of all splits
    rows = {}
    for title, ids in kept.items():
        entities = np.unique(ids.cpu().numpy())
        entities, scores = scored(run.model, side, anchor, relation, entities)
        rows[title] = {
            "distinct": len(entities),
            "mean": float(scores.mean()),
            "first": [
                {"label": graph.label(entity), "known": entity in known, "score": score}
                for entity, score in zip(
                    entities[:SHOWN].tolist(), scores[:SHOWN].tolist(), strict=True
                )
            ],
        }
    return {
        "question": question(graph, side, anchor, relation),
        "true": [graph.label(entity) for entity in sorted(known)[:SHOWN]],
        "more_true": max(0, len(known) - SHOWN),
        "rows": rows,
    }
