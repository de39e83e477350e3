"""What moves parameters by their gradients, and what it remembers of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nscaching.kernels.losses import Objective
from nscaching.kernels.state import State
from nscaching.models import Model

__all__ = [
    "BETAS", "EPSILON", "Learning", "Optimizer", "move", "new_optimizer", "optimizer_state",
    "restore_optimizer",
]  # fmt: skip

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's, as its authors recommend


@dataclass(frozen=True)
class Learning:
    """How a model learns from a batch."""

    objective: Objective
    margin: float
    lr: float
    weight_decay: float
    """The decay for one triple, λ / number of training triples; a batch decays by its sum."""
    rows: bool = False
    """Whether Adam moves only the rows that have a gradient; else all, by their momentum."""
    adagrad: bool = False
    """Whether it is Adagrad that moves them."""
    cubes: float = 0.0
    """The nuclear 3-norm penalty λ, on the vectors of each triple."""

    @property
    def compiled(self) -> bool:
        """Whether compiled gradient steps of one negative know this way of learning."""
        return self.objective != "shifted" and self.many_compiled

    @property
    def many_compiled(self) -> bool:
        """Whether compiled gradient steps of many negatives know it."""
        known = self.objective in ("margin", "logistic", "shifted")
        return known and not self.adagrad


class RowAdam:
    """Adam that moves only the rows with a gradient: the momentum of the others waits.

    Not the same as Adam, which goes on moving a row by its momentum, and decays it, in steps that
    have no gradient for it. On graphs of very many entities it is far cheaper.
    """

    def __init__(self, tables: Iterable[Tensor], learning: Learning) -> None:
        self.learning, self.steps = learning, 0
        self.param_groups = [{"weight_decay": 0.0}]
        self.state = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in tables]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for table, _, _ in self.state:
            table.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the rows."""
        self.steps += 1
        (beta_1, beta_2), weight_decay = BETAS, self.param_groups[0]["weight_decay"]
        size = self.learning.lr / (1 - beta_1**self.steps)
        for table, mean, square in self.state:
            if table.grad is None:
                continue
            row = table.grad.any(1).nonzero().squeeze(1)
            gradient = table.grad[row] + weight_decay * table[row]
            mean[row] = mean[row].lerp(gradient, 1 - beta_1)
            square[row] = beta_2 * square[row] + (1 - beta_2) * gradient.square()
            root = (square[row] / (1 - beta_2**self.steps)).sqrt()
            table[row] -= size * mean[row] / (root + EPSILON)


Optimizer = torch.optim.Adam | torch.optim.Adagrad | RowAdam

TORCH_NAMES = {
    torch.optim.Adam: {"mean": "exp_avg", "square": "exp_avg_sq"},
    torch.optim.Adagrad: {"square": "sum"},
}


def new_optimizer(model: Model, learning: Learning) -> Optimizer:
    """Return the optimizer of a model's parameters."""
    if learning.rows:
        return RowAdam(model.parameters(), learning)
    if learning.adagrad:
        return torch.optim.Adagrad(model.parameters(), lr=learning.lr)
    return torch.optim.Adam(
        model.parameters(),
        lr=learning.lr,
        betas=BETAS,
        eps=EPSILON,
        fused=True,
        capturable=model.entity.device.type == "cuda",
    )


def move(optimizer: Optimizer, weight_decay: float) -> None:
    """Move the parameters by their gradients, with this step's weight decay.

    A CUDA graph keeps the decay of the step that was recorded; a graph serves one batch size.
    """
    for group in optimizer.param_groups:
        group["weight_decay"] = weight_decay
    optimizer.step()


def optimizer_state(model: Model, optimizer: Optimizer) -> State:
    """Return means and squares of gradients and the number of steps, by names of parameters."""
    state: State = {}
    if isinstance(optimizer, RowAdam):
        for (name, _), (_, mean, square) in zip(
            model.named_parameters(), optimizer.state, strict=True
        ):
            state |= {f"mean.{name}": mean, f"square.{name}": square}
            state[f"steps.{name}"] = optimizer.steps
        return state
    names = TORCH_NAMES[type(optimizer)]
    for name, table in model.named_parameters():
        if own := optimizer.state.get(table):  # which a table without a gradient does not have
            state |= {f"{ours}.{name}": own[theirs] for ours, theirs in names.items()}
            state[f"steps.{name}"] = int(own["step"])
    return state


def restore_optimizer(model: Model, optimizer: Optimizer, state: State) -> None:
    """Take what ``optimizer_state`` returned."""
    parameters = [name for name, _ in model.named_parameters()]
    if isinstance(optimizer, RowAdam):
        for name, (_, mean, square) in zip(parameters, optimizer.state, strict=True):
            mean.copy_(state[f"mean.{name}"])
            square.copy_(state[f"square.{name}"])
            optimizer.steps = state[f"steps.{name}"]
        return
    names = TORCH_NAMES[type(optimizer)]
    tables = {}
    for index, name in enumerate(parameters):
        if f"steps.{name}" in state:
            # Copies: what lies in a file, anywhere in memory, may be summed in another order.
            tables[index] = {
                theirs: state[f"{ours}.{name}"].clone() for ours, theirs in names.items()
            }
            tables[index]["step"] = torch.tensor(float(state[f"steps.{name}"]))
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": tables, "param_groups": groups})
