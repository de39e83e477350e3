"""What a negative sampler is: it sees the batch with its row numbers, and the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.kernels import Kernels
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.state import State, join, part
from nscaching.models import Model
from nscaching.registry import Registry
from nscaching.samplers.draws import Draws

__all__ = ["SAMPLERS", "Negatives", "Sampler"]


class Sampler(ABC):
    """Makes negatives for a batch. One object serves one training run."""

    side: ClassVar[Literal["bernoulli", "uniform"] | None] = None
    """How head or tail is chosen; None: as the configuration says."""

    one_side: ClassVar[bool] = False
    """Whether its negatives have a new head or a new tail, never both.

    Several negatives of a triple have all the same side replaced, and say which. Compiled gradients
    take such negatives; with others autograd is used.
    """

    has_cache: ClassVar[bool] = False
    """Whether it refreshes a cache of the keys of a batch.

    The constructor of such a sampler also takes ``progress``, which receives (done, total) while
    the cache is filled.
    """

    usual_count: ClassVar[int] = 1
    """Negatives of each triple where the configuration leaves it open."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        device: torch.device,
        seed: int,
        kernels: Kernels | None = None,
    ) -> None:
        self.config, self.device, self.seed = config, device, seed
        self.count = config.negatives or self.usual_count
        self.kernels = kernels or Kernels()
        self.entities = len(graph.entities)
        self.draws = self.new_draws(graph, seed)
        self.tick = self.draws.tick
        """Number of the step."""
        self.head_probability = self.draws.head_probability  # [|R|]

    def new_draws(self, graph: KnowledgeGraph, seed: int) -> Draws:
        """Make the random numbers, and what the first step draws from."""
        return Draws(
            graph.train_index,
            self.entities,
            len(graph.relations),
            side=self.side or self.config.side,
            filter_known=self.config.filter_known,
            device=self.device,
            seed=seed,
            kernels=self.kernels,
        )

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027  (most samplers need not hear)
        """Hear that an epoch (1, 2, …) begins."""

    @property
    def in_torch(self) -> bool:
        """Whether torch does much of its work; else, on a CPU, compiled loops have all threads."""
        return True

    def phase(self) -> object:
        """Name what sets this step apart from others: steps of one phase do the same operations.

        None: there is no such name, since the operations depend on what is drawn.
        """
        return None

    def sample(self, batch: Batch, model: Model) -> Negatives:
        """Make the negatives of a batch (Algorithm 2, steps 5 to 7), new ones with every call."""
        self.tick += 1
        negatives = self.negatives(batch, model)
        if self.one_side and negatives.head.shape[1] != self.count:
            name, given = type(self).__name__, negatives.head.shape[1]
            raise UserError(f"{name} gives {given} negatives of each triple, not {self.count}")
        if self.one_side and self.count > 1 and negatives.replace_head is None:
            raise UserError(f"{type(self).__name__} has one_side = True and no replace_head")
        return negatives

    @abstractmethod
    def negatives(self, batch: Batch, model: Model) -> Negatives:
        """Make the negatives of a batch in this step."""

    def update(self, batch: Batch, model: Model) -> None:  # noqa: B027  (fixed ones do not learn)
        """Learn from the batch, with the parameters of before its gradient step (step 8)."""

    def figures(self) -> dict[str, float]:
        """Return what it measured since the last call, for the record of the epoch."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return what a later run or a reader would want to keep: the tensors themselves."""
        return {}

    def checkpoint(self) -> State:
        """Return all that an interrupted training needs to go on as if it had not been."""
        return self.draws.checkpoint() | join(state=self.state())

    def restore(self, state: State) -> None:
        """Take what a checkpoint holds."""
        self.draws.restore(state)
        kept = part(state, "state")
        for name, tensor in self.state().items():
            tensor.copy_(kept[name])

    def choose_head(self, batch: Batch) -> Tensor:
        """Choose for each triple [B] whether to replace its head, else its tail."""
        return self.draws.choose_head(batch)

    def random_entities(self, *shape: int) -> Tensor:
        """Draw entities, each equally likely."""
        return self.draws.random_entities(*shape)


SAMPLERS: Registry[Sampler] = Registry("sampler", Sampler, "nscaching.samplers")  # type: ignore[type-abstract]
