"""The queries of training by number: the keys of a cache."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Side
from nscaching.errors import UserError


class Keys:
    """The numbers of the queries of each side, by ascending anchor·|R| + relation."""

    def __init__(
        self, index: Mapping[Side, AnswerIndex], relations: int, device: torch.device
    ) -> None:
        self.relations, self.device = relations, device
        self._sorted = {side: index[side].codes for side in Side}
        self._codes: dict[Side, Tensor] = {}  # on the device, where somebody has asked for them

    def count(self, side: Side) -> int:
        return len(self._sorted[side])

    def queries(self, side: Side) -> tuple[Tensor, Tensor]:
        """Return anchor and relation of each key, which are all that scoring needs."""
        codes = torch.from_numpy(self._sorted[side]).to(self.device)
        return codes // self.relations, codes % self.relations

    def of(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return the keys [B] of queries, or raise a UserError that names an unknown query."""
        codes, code = self._all_codes(side), anchor * self.relations + relation
        key = torch.searchsorted(codes, code).clamp_(max=len(codes) - 1)
        unknown = (codes[key] != code) | (relation < 0) | (relation >= self.relations)
        if unknown.any():
            row = int(unknown.nonzero()[0, 0])
            ids = int(anchor[row]), int(relation[row])
            query = f"(?, {ids[1]}, {ids[0]})" if side is Side.HEAD else f"({ids[0]}, {ids[1]}, ?)"
            raise UserError(f"the training triples have no query {query}, so no cache of it")
        return key

    def digest(self) -> Tensor:
        """Return a checksum that only equal queries have."""
        codes = torch.cat([self._all_codes(side) for side in Side]).cpu().numpy()
        digest = hashlib.sha256(codes.tobytes()).digest()
        return torch.from_numpy(np.frombuffer(digest, np.int64).copy())

    @property
    def nbytes(self) -> int:
        return sum(codes.nbytes for codes in self._codes.values())

    def _all_codes(self, side: Side) -> Tensor:
        if side not in self._codes:
            self._codes[side] = torch.from_numpy(self._sorted[side]).to(self.device)
        return self._codes[side]
