"""Compiled distances with compiled gradients, for autograd."""

from typing import Any, Protocol

import torch
from torch import Tensor


class CompiledDistances(Protocol):
    """Compiled kernels for distances and for their gradients."""

    def pair_distances(self, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return ‖q − e‖ [n, E] of queries [n, D] and rows [E, D], with no gradient."""

    def slopes(self, weight: Tensor, query: Tensor, rows: Tensor, norm: int) -> Tensor:
        """Return Σₑ weight[n, E]·∂‖q − e‖/∂q [n, D]; in norm 2 the weight is divided by ‖q − e‖."""


def with_gradient(kernels: CompiledDistances, query: Tensor, rows: Tensor, norm: int) -> Tensor:
    """Return ‖q − e‖ [n, E] of queries [n, D] and rows [E, D], with a gradient if one is needed."""
    if not (torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad)):
        return kernels.pair_distances(query, rows, norm)
    distances: Tensor = _Distances.apply(kernels, query, rows, norm)  # type: ignore[no-untyped-call]
    return distances


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        kernels: CompiledDistances,
        query: Tensor,
        rows: Tensor,
        norm: int,
    ) -> Tensor:
        ctx.kernels, ctx.norm = kernels, norm
        distances = kernels.pair_distances(query, rows, norm)
        ctx.save_for_backward(query, rows, *([distances] if norm == 2 else []))
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
