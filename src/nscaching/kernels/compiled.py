"""What the compiled paths share on CPUs and GPUs."""

from abc import abstractmethod
from typing import Any, Generic, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.kernels.batch import Batch, Known, Negatives
from nscaching.kernels.caches import CacheAccess
from nscaching.kernels.codes import FORMS, GIVEN, KINDS, TRANSD, TRANSH
from nscaching.kernels.learner import Learner
from nscaching.kernels.losses import losses
from nscaching.kernels.optimizers import Learning
from nscaching.kernels.reference import Kernels
from nscaching.kernels.state import State, join, part
from nscaching.models import Form, Model

WITH_NEGATIVES = ("margin", "logistic", "shifted")
# On GPUs, gradients are compact where a graph has more entities than this for each place of a batch
# that names one. Else it takes no longer to look whether each row has a gradient.
SPARSE = 16
AT_ONCE = 1 << 18  # rows that torch makes a unit length of together
MOST_NUMBERS = 1 << 13  # of a row that kernels hold at once: not RESCAL's matrices


class CompiledLearner(Learner):
    """Gradient steps without autograd, of the models whose gradients are compiled.

    ``vectors`` holds the rows by which the model scores: the parameters, or copies of unit length.
    Each step normalizes the rows that it moves. ``current`` normalizes all rows if torch has
    changed the parameters since; code that changes them behind torch's back must call ``reload``.
    """

    steps: int

    def __init__(self, model: Model, learning: Learning) -> None:
        self.model, self.learning = model, learning
        self.kind = KINDS.get(type(model), GIVEN)
        self.tables = {name: table.detach() for name, table in model.named_parameters()}
        moved = {} if learning.adagrad else self.tables  # by their momentum too
        self.means = {name: torch.zeros_like(table) for name, table in moved.items()}
        self.squares = {name: learning.new_squares(table) for name, table in self.tables.items()}
        self.unit = model.normalized
        self.vectors = {
            name: torch.empty_like(table) if name in self.unit else table
            for name, table in self.tables.items()
        }
        # Tables of the directions in which relations shift rows, and of how far entities shift.
        self.direction = {TRANSH: "normal", TRANSD: "relation_projection"}.get(self.kind, "")
        self.projection = "entity_projection" if self.kind == TRANSD else ""

    def reload(self) -> None:
        for name in self.unit:  # in pieces: lengths and quotients of a whole table are as large
            pieces = (table.split(AT_ONCE) for table in (self.vectors[name], self.tables[name]))
            for vectors, rows in zip(*pieces, strict=True):
                vectors.copy_(F.normalize(rows))
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

    def is_kept(self, name: str) -> bool:
        """Say whether the unit rows of a table are in checkpoints."""
        return True

    def checkpoint(self) -> State:
        """Return moments, steps and vectors: rebuilt, these may differ in the last bit."""
        vectors = {name: self.vectors[name] for name in self.unit if self.is_kept(name)}
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
            for name, vectors in part(state, "ready").items():
                self.vectors[name].copy_(vectors)

    def table_and_moments(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return a table with the moments of its gradients; Adagrad has no use for the mean."""
        squares = self.squares[name]
        return self.tables[name], self.means.get(name, squares), squares

    def is_single(self, negatives: Negatives) -> bool:
        """Say whether the loops for a single negative, which make one pass, can be used."""
        single = negatives.head.shape[1] == 1 and not negatives.adversarial
        return single and self.learning.objective != "shifted"

    @staticmethod
    def replaced(batch: Batch, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Say which heads are replaced [B], and which entities [B, 1 + K]: true, then false."""
        replaced = negatives.replace_head
        if replaced is None:  # left out for a single negative by some samplers
            replaced = negatives.head[:, 0] != batch.head
        true = torch.where(replaced, batch.head, batch.tail).unsqueeze(1)
        false = torch.where(replaced.unsqueeze(1), negatives.head, negatives.tail)
        return replaced, torch.cat([true, false], 1)

    def slopes(
        self, batch: Batch, negatives: Negatives
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
        """Score the true entity and all false ones; torch makes losses and slopes of the scores.

        Returns what ``learn`` takes: which heads are replaced [B], the entities [B, 1 + K], the
        slopes of the losses by their scores [B, 1 + K]; then the losses, and which teach [B].
        """
        replaced, entity = self.replaced(batch, negatives)
        scores = self.scores(batch, replaced, entity).requires_grad_()
        how = self.learning.objective, self.learning.margin
        loss, teaching = losses(*how, scores[:, 0], scores[:, 1:], negatives.adversarial)
        (slopes,) = torch.autograd.grad(loss.sum(), scores)
        return (replaced, entity, slopes), loss.detach(), teaching


L = TypeVar("L", bound=CompiledLearner)


class CompiledKernels(Kernels, Generic[L]):
    """Compiled twins of the hot operations; operations without a twin run on the reference path."""

    _learner: L | None = None  # the learner of the model that is trained

    @abstractmethod
    def new_learner(self, model: Model, learning: Learning) -> L:
        """Return a learner whose steps are compiled."""

    @abstractmethod
    def new_softmax_learner(self, model: Model, learning: Learning) -> L:
        """Return a learner whose steps of the cached softmax are compiled."""

    def learner(self, model: Model, learning: Learning) -> Learner:
        if learning.objective == "softmax" and has_queries(model):
            self._learner = self.new_softmax_learner(model, learning)
        elif learning.objective in WITH_NEGATIVES and self.has_gradients(model):
            self._learner = self.new_learner(model, learning)
        else:
            return super().learner(model, learning)
        return self._learner

    def has_gradients(self, model: Model) -> bool:
        return has_gradients(model, self.name)

    def scorer(self, model: Model, learning: Learning) -> Learner:
        if not self.has_gradients(model):
            return super().scorer(model, learning)
        return self.new_learner(model, learning)

    def learner_of(self, model: Model) -> L | None:
        if self._learner is None or self._learner.model is not model:
            return None
        return self._learner.current()

    @torch.no_grad()
    def refresh(self, asked: CacheAccess) -> None:
        plain = asked.model.form not in FORMS or asked.model.reciprocal
        if plain or asked.is_known is not None or asked.settings.strata > 1:
            super().refresh(asked)
        else:
            self.refresh_compiled(asked, self.learner_of(asked.model))

    @abstractmethod
    def refresh_compiled(self, asked: CacheAccess, learner: L | None) -> None:
        """Refresh by one of the compiled forms, with the rows that a learner keeps ready."""

    def distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        if query.dtype != torch.float32:
            return super().distances(query, rows, norm)
        if not (torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad)):
            return self.pair_distances(query, rows, norm)
        distances: Tensor = _Distances.apply(self, query, rows, norm)  # type: ignore[no-untyped-call]
        return distances

    @abstractmethod
    def pair_distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return the distances with no gradient."""

    @abstractmethod
    def slopes(self, weight: Tensor, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return Σₑ weight[n, E]·∂‖q − e‖/∂q [n, D]; in norm 2 the weight is divided by ‖q − e‖."""

    def count(
        self,
        scores: Tensor,
        answer: Tensor,
        known: Known | None,
        target: Tensor | None = None,
        first: int = 0,
    ) -> Tensor:
        if scores.dtype != torch.float32:
            return super().count(scores, answer, known, target, first)
        if target is None:
            target = scores.gather(1, answer.unsqueeze(1)).squeeze(1)
        out = torch.empty(3, len(scores), dtype=torch.int64, device=scores.device)
        nothing = Known(answer, answer, answer.int())  # each query's range is empty
        self.count_to(out, scores.detach(), answer, target.detach(), known or nothing, first)
        return out

    @abstractmethod
    def count_to(
        self, out: Tensor, scores: Tensor, answer: Tensor, target: Tensor, known: Known, first: int
    ) -> None:
        """Write the counts [3, n] of scores of 32 bits."""


def is_compiled(model: Model) -> bool:
    return type(model) in KINDS and model.entity.dtype == torch.float32


def is_compact(entities: int, places: int) -> bool:
    return entities > SPARSE * places


def has_gradients(model: Model, kernels: str) -> bool:
    """Say whether gradients of single negatives are compiled: of more models on CPUs."""
    return is_compiled(model) or (kernels == "numba" and has_queries(model))


def has_queries(model: Model) -> bool:
    """Say whether compiled softmaxes know the form of a model and all that makes its queries.

    That is: the rows of the two tables as they are, and what the model has for each relation.
    """
    if model.form not in (Form.DOT, Form.DISTANCE) or model.entity.dtype != torch.float32:
        return False
    own = type(model)
    as_they_are = own.entity_rows is Model.entity_rows and own.rows_of is Model.rows_of
    alone = {name for name, _ in model.named_parameters()} == {"entity", "relation"}
    by_relation = all(b.shape[:1] == (model.relations,) for b in model.buffers())
    return as_they_are and alone and by_relation and model.relation.shape[1] <= MOST_NUMBERS


def shift_of(model: Model) -> Tensor | None:
    """Return the shift of each entity where it is the entity's own (``Form.SHIFTED``)."""
    if model.form is not Form.SHIFTED:
        return None
    return model.entity_shift(torch.arange(model.entities, device=model.entity.device))


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:  # noqa: ANN401
        ctx.kernels, query, rows, ctx.norm = given
        distances = ctx.kernels.pair_distances(query, rows, ctx.norm)
        ctx.save_for_backward(query, rows, *([distances] if ctx.norm == 2 else []))
        return distances

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # noqa: ANN401
        query, rows, *distances = ctx.saved_tensors
        (weight,) = gradients
        if distances:
            weight = torch.where(distances[0] > 0, weight / distances[0], 0)
        slopes, norm = ctx.kernels.slopes, ctx.norm
        # The gradient by e is the gradient by q with exchanged arguments: ‖q − e‖ = ‖e − q‖.
        by_rows = slopes(weight.T.contiguous(), rows, query, norm)
        return None, slopes(weight.contiguous(), query, rows, norm), by_rows, None
