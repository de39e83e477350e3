"""The rows of a batch, where a cache shares rows or does not lie on the device."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels import Batch, CacheAccess, CacheSide, Kernels, random
from nscaching.samplers.shared_rows import SharedRows

SEEN_BY = 8  # triples of a batch that an entity of a shared row is dealt to


class BatchRows:
    """Copies on the device of the rows of a batch, which kernels draw from and refresh.

    The copies of a side are ascending by row, one for each triple. Of triples with the same query
    the last refreshes the row. Where queries share a row, each triple refreshes its own copy, so
    that it draws from what its own query has chosen; see ``deal``.
    """

    def __init__(
        self,
        batch: Batch,
        rows: Mapping[Side, Tensor],
        shared: Mapping[Side, SharedRows],
        kernels: Kernels,
        mine: Sequence[Tensor | None] = (None, None),
    ) -> None:
        """Copy rows [rows, N1] of each side: the row of a triple is shared, or that of its key.

        ``mine`` marks the triples [B] that refresh a row of the side; None: all.
        """
        self.batch, self.kernels = batch, kernels
        self.sides = [
            _Side(batch, side, rows[side], shared.get(side), kernels, some)
            for side, some in zip(Side, mine, strict=True)
        ]

    def are_of(self, batch: Batch) -> bool:
        return self.batch is batch or all(
            torch.equal(self.batch.key(side), batch.key(side)) for side in Side
        )

    @property
    def copy(self) -> list[Tensor]:
        """The copy [B] of each triple on each side."""
        return [each.copy for each in self.sides]

    @property
    def refreshed(self) -> list[Tensor]:
        """The copies [B] that a refresh fills; −1 for the others."""
        return [each.refreshed for each in self.sides]

    def access(self, access: CacheAccess, copies: Sequence[Tensor]) -> CacheAccess:
        """Return the access with some copies in place of the keys and rows of the cache."""
        is_known, key = access.is_known, {each.cache.side: each.key for each in self.sides}

        def is_known_here(side: Side, copy: Tensor, entity: Tensor) -> Tensor:
            assert is_known is not None
            return is_known(side, key[side][copy], entity)

        return dataclasses.replace(
            access,
            sides=[each.cache for each in self.sides],
            keys=copies,
            is_known=is_known and is_known_here,
        )

    def deal(self, seed: int, tick: Tensor, entities: int) -> None:
        """Deal the entities of a shared row among its triples, like cards; the rest is random.

        All triples of a relation may share a row. If all could draw all that the row holds, few
        entities would be most of the negatives of a step. So each goes to about ``SEEN_BY`` of the
        triples. What the last triples keep goes back, of several a part each.
        """
        for each in self.sides:
            each.deal(seed, tick, entities)

    def put_back(self) -> None:
        """Write the refreshed copies to the cache."""
        for each in self.sides:
            ids = each.cache.ids if each.source is None else each.cache.ids.gather(0, each.source)
            self.kernels.put_rows(each.rows, each.row, ids, each.last)


class _Side:
    def __init__(
        self,
        batch: Batch,
        side: Side,
        rows: Tensor,
        shared: SharedRows | None,
        kernels: Kernels,
        mine: Tensor | None,
    ) -> None:
        anchor, _ = side.query(batch.head, batch.tail)
        key = batch.key(side)
        row = key if shared is None else shared.find(anchor, batch.relation)
        code = 2 * row + 1 if mine is None else 2 * row + mine
        code, order = code.sort(stable=True)
        self.shared = shared
        self.source: Tensor | None = None
        self.rows, self.row, self.key = rows, row[order], key[order]
        ids = kernels.take_rows(rows, self.row)
        self.cache = CacheSide(side, ids, anchor[order], batch.relation[order], self.key)
        copy = torch.arange(len(row), device=row.device)
        self.copy = torch.empty_like(copy).scatter_(0, order, copy)
        self.last = torch.searchsorted(self.row, self.row, right=True) - 1
        chosen = self.last == copy if shared is None else copy >= 0
        self.refreshed = copy.where(chosen & (code % 2 == 1), -1)
        self.first = torch.searchsorted(code, 2 * self.row + 1).clamp_(max=self.last)

    def deal(self, seed: int, tick: Tensor, entities: int) -> None:
        if self.shared is None:
            return
        copy = torch.arange(len(self.row), device=self.row.device)
        slot = torch.arange(self.rows.shape[1], device=self.row.device)
        # A row that belongs to one query goes to all of its triples, and the last counts.
        first = self.first.where(self.row >= len(self.shared.own), self.last).unsqueeze(1)
        last = self.last.unsqueeze(1)
        parts = (last - first) // SEEN_BY + 1
        if parts.is_cpu and bool((parts == 1).all()):  # nothing to deal, as is usual
            return
        place = copy.unsqueeze(1) - first  # among the triples of the row; below 0: not dealt
        start = random.stream(seed, tick, random.DEAL[self.cache.side])
        other = random.whole(random.bits(start, self.key.unsqueeze(1), slot), entities)
        mine = (slot % parts == place % parts) | (place < 0)
        self.cache.ids.copy_(torch.where(mine, self.cache.ids, other))
        self.source = last - slot % parts
