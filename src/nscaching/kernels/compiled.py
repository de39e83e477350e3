"""What compiled learners share on CPUs and GPUs: tables, vectors of unit length, checkpoints."""

from abc import abstractmethod
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.codes import DIRECTIONS, KINDS, TRANSD
from nscaching.kernels.learner import Learner, losses
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.state import State, join, part
from nscaching.models import Model


def is_compiled(model: Model) -> bool:
    """Say whether the model's gradients are compiled."""
    return type(model) in KINDS and model.entity.dtype == torch.float32


class CompiledLearner(Learner):
    """Gradient steps without autograd, of the models whose gradients are compiled.

    ``vectors`` holds the rows by which the model scores: the parameters, or copies of unit length.
    Each step normalizes the rows that it moves. ``current`` normalizes all rows if torch has
    changed the parameters since; code that changes them behind torch's back must call ``reload``.
    """

    steps: int

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning, self.kind = model, learning, KINDS[type(model)]
        self.tables = {name: table.detach() for name, table in model.named_parameters()}
        self.means = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        self.squares = {name: torch.zeros_like(table) for name, table in self.tables.items()}
        self.unit = model.normalized
        self.vectors = {
            name: torch.empty_like(table) if name in self.unit else table
            for name, table in self.tables.items()
        }
        self.direction = DIRECTIONS.get(self.kind, "")
        """Name of the relations' table along which rows are shifted, …"""
        self.projection = "entity_projection" if self.kind == TRANSD else ""
        """… and of the entities' table that says how far."""

    def reload(self) -> None:
        """Rebuild the vectors of unit length, after anything but a step changed the parameters."""
        for name in self.unit:
            self.vectors[name].copy_(F.normalize(self.tables[name]))
        self.versions = self._versions()

    def current(self) -> Self:
        """Return this learner, with vectors that belong to the parameters of now."""
        if self._versions() != self.versions:
            self.reload()
        return self

    def _versions(self) -> list[int]:
        """Return torch's counts of changes of the tables; compiled steps do not count."""
        return [table._version for table in self.tables.values()]

    @abstractmethod
    def own_state(self) -> dict[str, Tensor]:
        """Return the tensors that only this kind of learner has."""

    def checkpoint(self) -> State:
        """Return moments, steps and vectors: rebuilt, these may differ in the last bit."""
        vectors = {name: self.vectors[name] for name in self.unit}
        steps = dict.fromkeys(self.tables, self.steps)
        moments = join(mean=self.means, square=self.squares)
        return moments | join(ready=vectors, rows=self.own_state(), steps=steps)

    def restore(self, state: State) -> None:
        """Restore the state of a checkpoint; other kinds of learner store no vectors in it."""
        for kind, tables in (("mean", self.means), ("square", self.squares)):
            for name, table in tables.items():
                table.copy_(state[f"{kind}.{name}"])
        self.steps = max(part(state, "steps").values())
        self.reload()
        own, kept = self.own_state(), part(state, "rows")
        if own.keys() <= kept.keys():
            for name, tensor in own.items():
                tensor.copy_(kept[name])
            for name in self.unit:
                self.vectors[name].copy_(state[f"ready.{name}"])

    def is_single(self, negatives: Negatives) -> bool:
        """Say whether the loops for a single negative, which make one pass, can be used."""
        single = negatives.head.shape[1] == 1 and not negatives.adversarial
        return single and self.learning.compiled

    def slopes(
        self, batch: Batch, negatives: Negatives
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
        """Score the true entity and all false ones; torch makes losses and slopes of the scores.

        Returns what ``learn`` takes: which heads are replaced [B], the entities [B, 1 + K], the
        slopes of the losses by their scores [B, 1 + K]; then the losses, and which teach [B].
        """
        replace = negatives.replace_head
        if replace is None:  # a sampler of one side may leave it out for a single negative
            replace = negatives.head[:, 0] != batch.head
        true = torch.where(replace, batch.head, batch.tail).unsqueeze(1)
        false = torch.where(replace.unsqueeze(1), negatives.head, negatives.tail)
        entity = torch.cat([true, false], 1)
        scores = self.scores(batch, replace, entity).requires_grad_()
        parts = scores[:, 0], scores[:, 1:], negatives.adversarial
        loss, teaching = losses(self.learning, *parts)
        (slopes,) = torch.autograd.grad(loss.sum(), scores)
        return (replace, entity, slopes), loss.detach(), teaching
