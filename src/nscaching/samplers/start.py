"""The start of a negative cache: rows of random entities."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import CacheAccess
from nscaching.kernels.shards import Shards
from nscaching.kernels.strata import spread
from nscaching.samplers.draws import Draws, Progress

# The start fills this many rows at once and redraws excluded entities this often; rows that still
# hold one, because few entities remain, choose among all entities.
FILL_ROWS = 16384
FILL_ROUNDS = 8


def fill(
    rows: Mapping[Side, Tensor], draws: Draws, asked: CacheAccess, shared: bool, progress: Progress
) -> None:
    """Fill the rows of each side, which belong to one key each, or are shared.

    What a shared row may hold depends on the query: draws and refreshes ask the query at hand.
    """
    if shared:
        asked = dataclasses.replace(asked, is_known=None)
    total, done = sum(map(len, rows.values())), 0
    for side, ids in rows.items():
        begin = 0
        for part in ids.split(FILL_ROWS):
            key = torch.arange(begin, begin + len(part), device=draws.device)
            part.copy_(random_rows(side, key, part.shape[1], draws, asked))
            begin += len(part)
            done += len(part)
            progress(done, total)


def random_rows(side: Side, key: Tensor, n1: int, draws: Draws, asked: CacheAccess) -> Tensor:
    """Draw entities [n, N1] that may be cached for each key [n]."""
    strata = asked.settings.strata

    def draw() -> Tensor:
        drawn = draws.random_entities(len(key), n1)
        return spread(drawn, Shards(draws.entities, strata, 0)) if strata > 1 else drawn

    entities = draw()
    rows = torch.arange(len(key), device=key.device)  # those that may have an excluded entity
    for redraw in range(FILL_ROUNDS + 1):
        excluded = asked.excluded(side, key[rows], entities[rows])
        if excluded is None or not excluded.any():
            return entities
        left = excluded.any(1)
        rows, excluded = rows[left], excluded[left]
        if redraw < FILL_ROUNDS:
            fresh = draw()[rows]
            entities[rows] = torch.where(excluded, fresh, entities[rows])
    entities[rows] = draws.choose_entities(side, key[rows], n1, asked.is_known is not None)
    return entities
