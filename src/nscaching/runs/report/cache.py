"""The negative cache of a few keys, before and after training."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nscaching.errors import UserError
from nscaching.data.index import Side
from nscaching.runs.inspect import cache_at, recorded_epochs
from nscaching.evaluation.predict import known_answers
from nscaching.probes.files import Snapshots
from nscaching.runs.report.examples import LOOKED_AT, question, varied
from nscaching.runs.report.markup import badge, name, number, score, section, text

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["caches"]

KEYS = 4
SHOWN = 6
"""Entities of a cache row that are shown."""

HINT = (
    "For each question of training the cache keeps entities that make false but plausible "
    "answers; negatives are drawn from it. Scores are those of the trained model. An entity "
    "that is in fact a known answer is marked: no cache tells those apart by itself."
)


def caches(run: Run) -> str:
    """Return the cache of some training triples' questions, or why it is not there."""
    if run.config.sampler != "nscaching":
        return ""
    random = np.random.default_rng(run.config.seed)
    rows = random.permutation(len(run.graph.train))[:LOOKED_AT]
    chosen = varied(rows, run.graph.train[rows, 1], KEYS)
    sides = [(Side.TAIL, Side.HEAD)[i % 2] for i in range(len(chosen))]
    keys = [
        (side, int(run.graph.train_keys[side][row]))
        for side, row in zip(sides, chosen, strict=True)
    ]
    kept, missing = _kept(run, keys)
    cards = [
        _card(run, side, key, {title: rows[i] for title, rows in kept.items()})
        for i, (side, key) in enumerate(keys)
    ]
    content = f'<div class="cards wide">\n{"".join(cards)}</div>\n' if kept else ""
    return section("The cache", " ".join([HINT, *missing] if kept else missing), content)


def _kept(run: Run, keys: list[tuple[Side, int]]) -> tuple[dict[str, list[Tensor]], list[str]]:
    """Return the rows of some keys at the start and at the last epoch kept; what is missing."""
    if run.path is not None:  # where training has put them by now
        run = dataclasses.replace(run, snapshots=Snapshots(run.path))
    try:
        epochs = recorded_epochs(run)
    except UserError as reason:
        return {}, [_sentence(reason)]
    asked = {"before": 0} if 0 in epochs else {}
    if epochs[-1] > 0:
        asked[f"after epoch {number(epochs[-1])}"] = epochs[-1]
    kept, missing = {}, []
    if 0 not in epochs:
        missing.append("The start was not recorded (--snapshots 0 does that).")
    for title, epoch in asked.items():
        try:
            cache = cache_at(run, epoch)
        except UserError as reason:
            missing.append(_sentence(reason))
        else:
            kept[title] = [cache[side][key] for side, key in keys]
    return kept, missing


def _sentence(reason: UserError) -> str:
    return f"Not shown: {text(reason, 300)}."


@torch.no_grad()
def _card(run: Run, side: Side, key: int, kept: dict[str, Tensor]) -> str:
    index = run.graph.train_index[side]
    anchor, relation = divmod(int(index.codes[key]), index.relations)
    head, tail = (anchor, None) if side is Side.TAIL else (None, anchor)
    known = set(known_answers(run.graph, head, relation, tail))  # in whatever split
    lists = [
        f"<div><h4>{title}</h4>{_list(run, side, anchor, relation, ids, known)}</div>"
        for title, ids in kept.items()
    ]
    names = ", ".join(name(run.graph.label(entity), 40) for entity in sorted(known)[:SHOWN])
    more = f" and {len(known) - SHOWN:,} more" if len(known) > SHOWN else ""
    return (
        f"<article><h3>{question(run, side, anchor, relation)}</h3>\n"
        f'<p class="hint">True: {names}{more}</p>\n<div class="pair">{"".join(lists)}</div>'
        "</article>\n"
    )


def _list(run: Run, side: Side, anchor: int, relation: int, ids: Tensor, known: set[int]) -> str:
    """Return the entities of a cache row that score highest, each once."""
    device = run.model.entity.device
    entities = ids.to(device).long().unique()
    given, asked = (torch.tensor([value], device=device) for value in (anchor, relation))
    scores = run.model.score_candidates(side, given, asked, entities.unsqueeze(0))[0]
    best = scores.argsort(descending=True, stable=True)[:SHOWN]
    rows = [
        f"<li><span>{name(run.graph.label(entity), 48)}"
        f"{' ' + badge('known') if entity in known else ''}</span>"
        f"<output>{score(value)}</output></li>\n"
        for entity, value in zip(entities[best].tolist(), scores[best].tolist(), strict=True)
    ]
    rest = f"{len(entities)} entities, mean score {score(float(scores.mean()))}"
    return f'<ul class="answers plain">\n{"".join(rows)}</ul><p class="hint">{rest}</p>'
