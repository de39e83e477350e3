"""The negative cache of a few keys, before and after training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nscaching.graph import Side
from nscaching.predict import known_answers
from nscaching.report.examples import LOOKED_AT, question, varied
from nscaching.report.markup import badge, name, score, section

if TYPE_CHECKING:
    from nscaching.run import Run

__all__ = ["caches"]

KEYS = 4
SHOWN = 6
"""Entities of a cache row that are shown."""

START = Path("snapshots") / "cache-000000.safetensors"

HINT = (
    "For each question of training the cache keeps entities that make false but plausible "
    "answers; negatives are drawn from it. Scores are those of the trained model. An entity "
    "that is in fact a known answer is marked: no cache tells those apart by itself."
)


def caches(run: Run) -> str:
    """Return the cache of some training triples' questions; empty without such a cache."""
    after = {side: run.sampler_state.get(f"{side.value}_cache") for side in Side}
    index = run.graph.train_index
    if run.config.sampler != "nscaching" or not all(
        rows is not None and rows.ndim == 2 and len(rows) == len(index[side])
        for side, rows in after.items()
    ):
        return ""
    random = np.random.default_rng(run.config.seed)
    rows = random.permutation(len(run.graph.train))[:LOOKED_AT]
    cards, before_is_there = [], False
    for i, row in enumerate(varied(rows, run.graph.train[rows, 1], KEYS)):
        side = (Side.TAIL, Side.HEAD)[i % 2]
        key = int(run.graph.train_keys[side][row])
        cache = after[side]
        assert cache is not None
        before = _start(run.path, side, key, cache)
        before_is_there |= before is not None
        cards.append(_card(run, side, key, before, cache[key]))
    missing = "" if before_is_there else " The start was not recorded (--snapshots 0 does that)."
    return section(
        "The cache", HINT + missing, f'<div class="cards wide">\n{"".join(cards)}</div>\n'
    )


def _start(folder: Path | None, side: Side, key: int, after: Tensor) -> Tensor | None:
    """Read one row of the cache as it was before training, if that was recorded."""
    from safetensors import SafetensorError, safe_open

    if folder is None or not (folder / START).is_file():
        return None
    try:
        with safe_open(folder / START, framework="pt") as file:
            rows = file.get_slice(f"{side.value}_cache")
            same = tuple(rows.get_shape()) == tuple(after.shape)
            return torch.as_tensor(rows[key : key + 1][0]) if same else None
    except (OSError, SafetensorError):
        return None


@torch.no_grad()
def _card(run: Run, side: Side, key: int, before: Tensor | None, after: Tensor) -> str:
    index = run.graph.train_index[side]
    anchor, relation = divmod(int(index.codes[key]), index.relations)
    head, tail = (anchor, None) if side is Side.TAIL else (None, anchor)
    known = set(known_answers(run.graph, head, relation, tail))  # in whatever split
    lists = []
    for title, ids in (("before", before), ("after", after)):
        if ids is None:
            continue
        lists.append(f"<div><h4>{title}</h4>{_list(run, side, anchor, relation, ids, known)}</div>")
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
    entities = entities[(entities >= 0) & (entities < len(run.graph.entities))]
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
