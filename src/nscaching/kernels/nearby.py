"""Random walks of one or two steps through the training graph: where hard negatives often stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Ids, Side
from nscaching.kernels import random


@dataclass(frozen=True)
class Nearby:
    """The neighbours of every entity, as the answers of the queries of which it is the anchor."""

    heads: Tensor  # int32 [n]: heads of the training triples, tail by tail
    tails: Tensor  # int32 [n]: tails of the training triples, head by head
    first_head: Tensor  # int32 [|E| + 1]: where the heads of a tail begin
    first_tail: Tensor  # int32 [|E| + 1]: where the tails of a head begin
    count: int  # walks of a query in each step

    @classmethod
    def of(
        cls, index: Mapping[Side, AnswerIndex], entities: int, count: int, device: torch.device
    ) -> Nearby:
        heads, tails = (torch.from_numpy(index[side].answers).to(device) for side in Side)
        first_head, first_tail = (
            torch.from_numpy(_begins(index[side], entities)).to(device) for side in Side
        )
        return cls(heads, tails, first_head, first_tail, count)

    @property
    def graph(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.heads, self.tails, self.first_head, self.first_tail

    def walk(self, start: Tensor, anchor: Tensor, key: Tensor) -> Tensor:
        """Return where walks from each anchor [B] end [B, count]: after one, two, one … steps."""
        key, index = key.unsqueeze(1), torch.arange(self.count, device=key.device)
        one = self._step(anchor.unsqueeze(1), random.bits(start, key, 2 * index))
        two = self._step(one, random.bits(start, key, 2 * index + 1))
        return torch.where(index % 2 == 0, one, two)

    def _step(self, entity: Tensor, bits: Tensor) -> Tensor:
        """Choose a triple that holds the entity, and return the other end."""
        heads, tails = (
            first[entity + 1].long() - first[entity] for first in (self.first_head, self.first_tail)
        )
        place = random.whole(bits, heads + tails)
        of_heads = self.heads[(self.first_head[entity] + place).clamp(max=len(self.heads) - 1)]
        place = self.first_tail[entity] + (place - heads).clamp(min=0)
        of_tails = self.tails[place.clamp(max=len(self.tails) - 1)]
        return torch.where(random.whole(bits, heads + tails) < heads, of_heads, of_tails).long()


def _begins(index: AnswerIndex, entities: int) -> Ids:
    """Return where the answers of the queries of each anchor begin [|E| + 1]."""
    anchors = np.arange(entities + 1, dtype=np.int64) * index.relations
    return index.offsets[np.searchsorted(index.codes, anchors)].astype(np.int32)
