"""The base class of negative samplers, which see a batch with its keys, and the model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.kernels import Batch, Contrast, Kernels, Negatives, Rivals, State, join, part
from nscaching.models import Model
from nscaching.registry import Registry
from nscaching.samplers.draws import Draws, Progress, SideRule


class Sampler(ABC):
    """Makes negatives for a batch. One object serves one training run."""

    side: ClassVar[SideRule | None] = None
    """How head or tail is chosen; None: by the configuration."""

    one_side: ClassVar[bool] = False
    """Whether all negatives of a triple replace the same side, which ``replace_head`` says.

    Compiled gradients need such negatives; with others autograd is used.
    """

    has_negatives: ClassVar[bool] = True
    """Whether there are negatives; without them, the loss compares with all entities."""

    has_rivals: ClassVar[bool] = False
    """Whether ``rivals`` gives what the objective softmax compares with."""

    has_weights: ClassVar[bool] = False
    """Whether negatives are weighted by their scores (``Negatives.adversarial``)."""

    has_generator: ClassVar[bool] = False
    """Whether a second model makes the negatives; its class takes ``start``, its parameters."""

    own_generator: ClassVar[type[Model] | None] = None
    """The class of the generator; None: the one that the configuration names."""

    filters_known: ClassVar[bool] = False
    """Whether known triples are left out even if the configuration does not ask for that."""

    has_cache: ClassVar[bool] = False
    """Whether the keys of a batch have a cache that ``update`` refreshes.

    The constructor of such a class also takes ``progress``, which receives (done, total) while the
    cache is filled, and ``folder``, where a cache on the disk may have its file.
    """

    scores_all: ClassVar[bool] = False
    """Whether the generator scores all entities for each triple; autograd makes its gradients."""

    in_torch: bool = True
    """Whether torch does much of the work; if not, compiled loops get all threads of a CPU."""

    usual_count: ClassVar[int] = 1
    """Negatives of each triple, unless the configuration says how many."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        device: torch.device,
        seed: int,
        kernels: Kernels | None = None,
        *,
        progress: Progress = lambda done, total: None,
        start: Mapping[str, Tensor] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.config, self.device, self.seed = config, device, seed
        self.progress, self.start, self.folder = progress, start, folder
        self.count = config.negatives or self.usual_count
        self.kernels = kernels or Kernels()
        self.entities = len(graph.entities)
        self.draws = self.prepare(graph)
        self.random, self.tick = self.draws.random, self.draws.tick

    def prepare(self, graph: KnowledgeGraph) -> Draws:
        """Make what the first step draws from, and return the random numbers."""
        return Draws(
            graph.train_index, self.entities, len(graph.relations),
            side=self.side or self.config.side,
            filter_known=self.config.filter_known or self.filters_known,
            device=self.device, seed=self.seed, kernels=self.kernels,
        )  # fmt: skip

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027  (most samplers ignore it)
        """Prepare for an epoch (1, 2, …)."""

    def phase(self) -> object:
        """Return the same value for steps that do the same operations, so that a graph can replay.

        None: the operations depend on the draws. Not asked where known triples are left out.
        """
        return None

    def sample(self, batch: Batch, model: Model) -> Contrast:
        """Make the negatives of a batch (Algorithm 2, steps 5 to 7), new ones with every call."""
        self.tick += 1
        if self.config.objective == "softmax":
            return self.rivals(batch, model)
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

    def rivals(self, batch: Batch, model: Model) -> Rivals:
        """Return what a softmax compares the answers of a batch with in this step."""
        return Rivals(self.draws.tail(self.config.tail), self.entities)

    def update(self, batch: Batch, model: Model) -> None:  # noqa: B027  (fixed ones do not learn)
        """Learn from the batch, with the parameters before its gradient step (step 8)."""

    def settle(self) -> None:  # noqa: B027  (most have nothing under way)
        """End a step, after its gradient step."""

    def plan(self, why: str) -> str:
        """Say where a cache lies, and ``why``, and how many rows it has; empty: as usual."""
        return ""

    def figures(self) -> dict[str, float]:
        """Return the figures since the last call, for the record of the epoch."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a finished run keeps, not copies of them."""
        return {}

    def checkpoint(self) -> State:
        """Return all that a run needs to resume as if it had not been interrupted."""
        return self.draws.checkpoint() | join(state=self.state())

    def restore(self, state: State) -> None:
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
