"""Optimizers move parameters by their gradients and keep moments of the gradients."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.kernels.losses import Objective
from nscaching.models import Model

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's, as its authors recommend
ADAGRAD_EPSILON = 1e-10


@dataclass(frozen=True)
class Learning:
    """How a model learns from a batch."""

    objective: Objective
    margin: float
    lr: float
    weight_decay: float
    """The decay for one triple, λ / number of training triples; a batch decays by its sum."""
    rows: bool = False
    """Whether only the rows that have a gradient move; else all, by momentum or weight decay."""
    adagrad: bool = False  # else Adam; with ``rows`` it is RowAdagrad
    adagrad_start: float = 0.0  # what Adagrad's sums of squares start at
    cubes: float = 0.0  # the nuclear 3-norm penalty λ, on the vectors of each triple
    scale: float = 1.0  # the softmax takes scores times this
    relation_weight: float = 0.0  # of the softmax over the relations of (h, ?, t)

    @property
    def rows_only(self) -> bool:
        """Whether a row without a gradient stays: Adagrad has no momentum, only weight decay."""
        return self.rows or (self.adagrad and not self.weight_decay)

    @property
    def one_number(self) -> bool:
        """Whether the optimizer keeps one number for a row, not one for each number of the row."""
        return self.rows and self.adagrad

    def new_squares(self, table: Tensor) -> Tensor:
        """Return what sums of squares of a table's gradients start at: [rows, D] or [rows, 1]."""
        columns = 1 if self.one_number else table.shape[1]
        return table.new_full((len(table), columns), self.adagrad_start if self.adagrad else 0.0)


class RowAdam(torch.optim.Optimizer):
    """Adam that moves only the rows with a gradient: the momentum of the others waits.

    Not the same as Adam: Adam moves a row by its momentum, and decays the momentum, also in steps
    that have no gradient for the row. On graphs of very many entities RowAdam is far cheaper.
    """

    def __init__(self, tables: Iterable[Tensor], lr: float) -> None:
        super().__init__(tables, {"lr": lr, "weight_decay": 0.0})
        for table in self.param_groups[0]["params"]:
            mean, square = (torch.zeros_like(table, requires_grad=False) for _ in range(2))
            self.state[table] = {"exp_avg": mean, "exp_avg_sq": square, "step": 0}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure
        (beta_1, beta_2), group = BETAS, self.param_groups[0]
        for table in group["params"]:
            state = self.state[table]
            state["step"] += 1
            if table.grad is None:
                continue
            mean, square, steps = state["exp_avg"], state["exp_avg_sq"], state["step"]
            row = table.grad.any(1).nonzero().squeeze(1)
            gradient = table.grad[row] + group["weight_decay"] * table[row]
            mean[row] = mean[row].lerp(gradient, 1 - beta_1)
            square[row] = beta_2 * square[row] + (1 - beta_2) * gradient.square()
            root = (square[row] / (1 - beta_2**steps)).sqrt()
            table[row] -= group["lr"] / (1 - beta_1**steps) * mean[row] / (root + EPSILON)


class RowAdagrad(torch.optim.Optimizer):
    """Adagrad with one sum for each row, of the mean squares of its gradients.

    Only rows with a gradient move. The state is |E| numbers, where Adagrad's is |E|·d.
    """

    def __init__(self, tables: Iterable[Tensor], learning: Learning) -> None:
        super().__init__(tables, {"lr": learning.lr, "weight_decay": 0.0})
        for table in self.param_groups[0]["params"]:
            self.state[table] = {"sum": learning.new_squares(table.detach()), "step": 0}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure
        group = self.param_groups[0]
        for table in group["params"]:
            state = self.state[table]
            state["step"] += 1
            if table.grad is None:
                continue
            row = table.grad.any(1).nonzero().squeeze(1)
            gradient = table.grad[row] + group["weight_decay"] * table[row]
            state["sum"][row] += gradient.square().mean(1, keepdim=True)
            table[row] -= group["lr"] * gradient / (state["sum"][row].sqrt() + ADAGRAD_EPSILON)


MOMENTS = {"mean": "exp_avg", "square": "exp_avg_sq"}
TORCH_NAMES: dict[type, dict[str, str]] = {
    torch.optim.Adam: MOMENTS,
    RowAdam: MOMENTS,
    RowAdagrad: {"square": "sum"},
    torch.optim.Adagrad: {"square": "sum"},
}


def new_optimizer(model: Model, learning: Learning) -> torch.optim.Optimizer:
    tables, lr = model.parameters(), learning.lr
    if learning.one_number:
        return RowAdagrad(tables, learning)
    if learning.rows:
        return RowAdam(tables, lr)
    if learning.adagrad:
        start = learning.adagrad_start
        return torch.optim.Adagrad(tables, lr, eps=ADAGRAD_EPSILON, initial_accumulator_value=start)
    return torch.optim.Adam(tables, lr, BETAS, EPSILON, fused=True, capturable=model.entity.is_cuda)


def move(optimizer: torch.optim.Optimizer, weight_decay: float) -> None:
    """Move the parameters by their gradients, with this step's weight decay.

    A CUDA graph keeps the decay of the step that was recorded; a graph serves one batch size.
    """
    for group in optimizer.param_groups:
        group["weight_decay"] = weight_decay
    optimizer.step()
