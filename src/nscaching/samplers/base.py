"""What a negative sampler is: it sees the batch with its row numbers, and the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.kernels import Kernels
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.choose import select
from nscaching.kernels.state import State, join, part, restore_random
from nscaching.models import Model
from nscaching.registry import Registry

__all__ = ["SAMPLERS", "Negatives", "Sampler"]

# A choice among all entities is made for as many keys at once as have this many pairs in all.
CHOICE_PAIRS = 1 << 22

# Known triples are drawn anew this often; then the few that are left choose among all entities.
REDRAWS = 10


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
    """Whether it refreshes a cache of the keys of a batch."""

    has_generator: ClassVar[bool] = False
    """Whether a second model, the generator, proposes the negatives and learns."""

    scores_all: ClassVar[bool] = False
    """Whether the generator scores all entities for each triple; autograd makes its gradients."""

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
        self.random = torch.Generator(device).manual_seed(seed)
        """For what happens seldom; the draws of a step are a function of seed and tick."""
        self.tick = torch.zeros((), dtype=torch.int64, device=device)
        """Number of the step."""
        if (self.side or config.side) == "bernoulli":
            self.head_probability = _tensor(graph.head_probability, device)  # [|R|]
        else:
            self.head_probability = torch.full((len(graph.relations),), 0.5, device=device)
        self._known: dict[Side, Tensor] = {}
        self._exhausted: dict[Side, Tensor] = {}
        """For each key, whether every entity makes a training triple of it."""
        if config.filter_known:
            for side, index in graph.train_index.items():
                self._known[side] = _tensor(index.pair_codes(self.entities), device)
                full = np.diff(index.offsets) == self.entities
                self._exhausted[side] = _tensor(full, device)

    def fill(  # noqa: B027  (most have nothing to fill)
        self, progress: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        """Make what the first step draws from, where that may take long."""

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
        own = {"tick": self.tick, "random": self.random.get_state()}
        return own | join(state=self.state())

    def restore(self, state: State) -> None:
        """Take what a checkpoint holds."""
        self.tick.copy_(state["tick"])
        restore_random(self.random, state["random"], self.seed + int(state["tick"]))
        kept = part(state, "state")
        for name, tensor in self.state().items():
            tensor.copy_(kept[name])

    def is_known(self, side: Side, key: Tensor, entity: Tensor) -> Tensor:
        """Tell whether an entity completes the key to a training triple (``filter_known`` only)."""
        code = key * self.entities + entity
        codes = self._known[side]
        place = torch.searchsorted(codes, code).clamp_(max=len(codes) - 1)
        return codes[place] == code

    def choose_head(self, batch: Batch) -> Tensor:
        """Choose for each triple [B] whether its head is to be replaced, else its tail."""
        replace_head = self.kernels.coin(batch, self.head_probability, self.seed, self.tick)
        if not self.config.filter_known:
            return replace_head
        # Where one side has nothing but known triples, the other has to serve.
        no_head, no_tail = (self._exhausted[side][batch.key(side)] for side in Side)
        return torch.where(no_head == no_tail, replace_head, no_tail)

    def unknown_entities(self, batch: Batch, replace_head: Tensor, count: int) -> Tensor:
        """Draw entities [B, count] that make no training triple in place of head or tail."""
        chosen = torch.empty(len(batch), count, dtype=torch.int64, device=self.device)
        for side, mine in ((Side.HEAD, replace_head), (Side.TAIL, ~replace_head)):
            key = batch.key(side)[mine].repeat_interleave(count)
            entity = self.random_entities(len(key))
            for _ in range(REDRAWS):
                known = self.is_known(side, key, entity)
                entity = torch.where(known, self.random_entities(len(key)), entity)
            known = self.is_known(side, key, entity)
            entity[known] = self.choose_entities(side, key[known], 1).squeeze(1)
            chosen[mine] = entity.view(-1, count)
        return chosen

    def random_entities(self, *shape: int) -> Tensor:
        """Draw entities, each equally likely."""
        return torch.randint(self.entities, shape, generator=self.random, device=self.device)

    def choose_entities(self, side: Side, key: Tensor, count: int) -> Tensor:
        """Choose ``count`` entities for each key, all different: key [n] → ids [n, count].

        With ``filter_known`` they make no training triple; where fewer than ``count`` are left,
        those are taken again, and where none is left, any.
        """
        everyone = torch.arange(self.entities, device=self.device)
        chosen = []
        for some in key.split(max(1, CHOICE_PAIRS // self.entities)):
            equal = torch.zeros(len(some), self.entities, device=self.device)
            known = None
            if self.config.filter_known:
                known = self.is_known(side, some.unsqueeze(1), everyone)
            chosen.append(select("uniform", equal, count, self.random, excluded=known))
        return torch.cat(chosen)


def _tensor(array: object, device: torch.device) -> Tensor:
    return torch.as_tensor(array, device=device)


SAMPLERS: Registry[Sampler] = Registry("sampler", Sampler, "nscaching.samplers")  # type: ignore[type-abstract]
