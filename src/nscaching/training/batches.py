"""The training triples on a device, in shuffled batches."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.kernels import Kernels
from nscaching.kernels.batch import Batch
from nscaching.kernels.state import State


class TrainingTriples:
    """The training split as int64 columns; every pass has a new random order."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        device: torch.device,
        seed: int,
        gather: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        columns = [*graph.train.T, *(graph.train_keys[side] for side in (Side.HEAD, Side.TAIL))]
        # Each column contiguous in memory, which the columns of a table [n, 5] would not be.
        self.columns = torch.stack([torch.from_numpy(np.array(c)).long() for c in columns])
        self.columns = self.columns.to(device)  # [5, n]
        self.gather = gather or Kernels().gather
        self.random = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device
        self._order = self._shuffle()

    def __len__(self) -> int:
        return self.columns.shape[1]

    def rows(self, size: int, begin: int = 0) -> Iterator[Tensor]:
        """Yield every row number once, in batches of ``size`` (the last may be smaller).

        An interrupted pass continues after its first ``begin`` rows.
        """
        rest = self._order[begin:]
        yield from rest.split(size) if len(rest) else ()
        # Shuffled here, the next pass is ready while a GPU still works on this one.
        self._order = self._shuffle()

    def checkpoint(self) -> State:
        """Return the random state that this pass and all later ones follow from."""
        return {"random": self._before}

    def restore(self, state: State) -> None:
        """Draw the order of the interrupted pass again."""
        self.random.set_state(state["random"].clone())
        self._order = self._shuffle()

    def _shuffle(self) -> Tensor:
        self._before = self.random.get_state()
        order = torch.randperm(len(self), generator=self.random)
        if self.columns.is_cuda:
            order = order.pin_memory()
        return order.to(self.columns.device, non_blocking=True)

    def batch(self, row: Tensor) -> Batch:
        return Batch(*self.gather(self.columns, row).unbind(0))
