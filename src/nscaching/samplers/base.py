"""The base class of negative samplers, which see a batch with its keys, and the model."""

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

# Pairs of key and entity that are scored at once in a choice among all entities.
CHOICE_PAIRS = 1 << 22

# Known triples are redrawn this many times; the rest then choose among all unknown entities.
REDRAWS = 10


class Sampler(ABC):
    """Makes negatives for a batch. One object serves one training run."""

    side: ClassVar[Literal["bernoulli", "uniform"] | None] = None
    """How head or tail is chosen; None: by the configuration."""

    one_side: ClassVar[bool] = False
    """Whether all negatives of a triple replace the same side, which ``replace_head`` says.

    Compiled gradients need such negatives; with others autograd is used.
    """

    has_negatives: ClassVar[bool] = True
    """Whether there are negatives; without them, the loss compares with all entities."""

    has_weights: ClassVar[bool] = False
    """Whether negatives are weighted by their scores (``Negatives.adversarial``)."""

    has_generator: ClassVar[bool] = False
    """Whether a second model makes the negatives; its class takes ``start``, its parameters."""

    has_cache: ClassVar[bool] = False
    """Whether the keys of a batch have a cache that ``update`` refreshes."""

    cache: dict[Side, Tensor]
    """The cached ids of each side, int32 [keys, N1], of a sampler that has a cache."""

    usual_count: ClassVar[int] = 1
    """Negatives of each triple, unless the configuration says how many."""

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
        """For rare draws; the usual draws of a step are a function of seed and tick."""
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
        """Prepare for the first step, where that may take long."""

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027  (most samplers ignore it)
        """Prepare for an epoch (1, 2, …)."""

    @property
    def in_torch(self) -> bool:
        """Whether torch does much of the work; if not, compiled loops get all threads of a CPU."""
        return True

    def phase(self) -> object:
        """Return the same value for steps that do the same operations, so that a graph can replay.

        None: the operations depend on the draws.
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
        """Learn from the batch, with the parameters before its gradient step (step 8)."""

    def figures(self) -> dict[str, float]:
        """Return the figures since the last call, for the record of the epoch."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a finished run keeps, not copies of them."""
        return {}

    def checkpoint(self) -> State:
        """Return all that a run needs to resume as if it had not been interrupted."""
        own = {"tick": self.tick, "random": self.random.get_state()}
        return own | join(state=self.state())

    def restore(self, state: State) -> None:
        """Restore the state of a checkpoint."""
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
        # Where all triples of one side are known, replace the other side.
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

        With ``filter_known`` they make no training triple. Where fewer than ``count`` are unknown,
        these repeat; where none is unknown, any entity is chosen.
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
