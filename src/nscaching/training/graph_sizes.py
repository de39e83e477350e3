"""The sizes of a graph that is not there."""

from typing import Any

import numpy as np

from nscaching.data.index import Side


class Sizes:
    """The sizes of a graph that need not be there, for a statement of what a training would need.

    ``keys`` are the distinct queries (?, r, t) and (h, r, ?) of training; as a rule there are fewer
    than twice the triples.
    """

    def __init__(
        self, entities: int, relations: int, triples: int, keys: int, held_out: int = 0
    ) -> None:
        self.entities, self.relations = range(entities), range(relations)  # named by their numbers
        nothing = np.zeros(1, np.int32)
        self.train = np.broadcast_to(nothing, (triples, 3))
        self.valid = self.test = np.broadcast_to(nothing, (held_out, 3))
        self.train_index = {Side.HEAD: range(keys // 2), Side.TAIL: range(keys - keys // 2)}
        self.labels: dict[str, str] = {}
        self.labelled: dict[str, Any] = {}

    def index_bytes(self) -> int:
        return 0
