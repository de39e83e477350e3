"""What a training would be made of, known from its settings: tensors have shapes here, no data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import torch

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.kernels import Learning, choose_kernels
from nscaching.kernels.codes import KINDS
from nscaching.kernels.dispatch import choose_device
from nscaching.models import Model, build
from nscaching.samplers import SAMPLERS, Sampler
from nscaching.training.objective import choose_objective, penalty

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """A training that has not begun."""

    graph: KnowledgeGraph
    config: TrainConfig
    snapshots: int = 0
    """Of the cache, that are to be kept."""

    def changed(self, **settings: object) -> Plan:
        """Return the plan with other settings."""
        config = dataclasses.replace(self.config, **settings)  # type: ignore[arg-type]
        return dataclasses.replace(self, config=config)

    @cached_property
    def device(self) -> torch.device:
        """Where it computes."""
        return choose_device(self.config.device)

    @cached_property
    def kernels(self) -> str:
        """The path that runs the hot operations."""
        return choose_kernels(self.config.kernels, self.device).name

    @cached_property
    def threads(self) -> int:
        """Threads on the CPU."""
        return self.config.threads or torch.get_num_threads()

    @cached_property
    def model(self) -> Model:
        """The model, without the numbers."""
        return self._build(self.config.model)

    @cached_property
    def generator(self) -> Model | None:
        """The model that makes the negatives (kbgan, igan)."""
        has = hasattr(self.sampler, "candidates")
        return self._build(self.config.generator) if has else None

    def _build(self, name: str) -> Model:
        try:
            with torch.device("meta"):
                return build(name, self.graph, self.config.dim, self.config.norm)
        except (NotImplementedError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"the memory of model {name} cannot be computed: {reason}") from error

    @cached_property
    def sampler(self) -> type[Sampler]:
        """What draws the negatives."""
        return SAMPLERS.get(self.config.sampler)

    @property
    def negatives(self) -> int:
        """Negatives of each triple."""
        return self.config.negatives or self.sampler.usual_count

    @cached_property
    def objective(self) -> str:
        """The loss."""
        return choose_objective(self.config, self.model)

    @cached_property
    def compiled(self) -> bool:
        """Whether gradients are compiled; else they are autograd's."""
        config = self.config
        learning = Learning(
            choose_objective(config, self.model),
            config.margin,
            config.lr,
            weight_decay=0.0,
            adagrad=config.optimizer == "adagrad",
            cubes=penalty(config, self.model) if config.penalty_norm == "n3" else 0.0,
        )
        if not self.sampler.one_side or type(self.model) not in KINDS:
            return False
        return self.kernels != "reference" and learning.many_compiled

    @property
    def compiled_generator(self) -> bool:
        """Whether the gradients of a generator are compiled."""
        known = self.generator is not None and type(self.generator) in KINDS
        fast = self.kernels != "reference"
        return known and fast and self.config.sampler.casefold() != "igan"

    def keys(self, side: Side) -> int:
        """Return the number of different queries of training on a side."""
        return len(self.graph.train_index[side])

    @property
    def all_keys(self) -> int:
        """Return that of both sides."""
        return sum(self.keys(side) for side in Side)

    @property
    def triples(self) -> int:
        """Training triples."""
        return len(self.graph.train)

    @property
    def every_triple(self) -> int:
        """Triples of all splits."""
        return self.triples + len(self.graph.valid) + len(self.graph.test)

    @property
    def batch(self) -> int:
        """Triples in one step."""
        return min(self.config.batch_size, self.triples)
