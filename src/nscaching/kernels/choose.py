"""Ways to choose columns of a score matrix, for draws and for refreshes; sorting."""

import numpy as np
import torch
from torch import Tensor

from nscaching.settings import Strategy


def select(
    strategy: Strategy,
    scores: Tensor,
    count: int,
    random: torch.Generator | Tensor,
    temperature: float = 1.0,
    excluded: Tensor | None = None,
) -> Tensor:
    """Choose ``count`` distinct columns of each row: scores [n, C] → indices [n, count].

    - importance: one by one with probability softmax(scores / temperature) over what is left.
      Adding Gumbel noise and taking the largest gives exactly that distribution, with no loop.
    - top: the largest scores.
    - uniform: any columns, equally likely.

    ``random`` is Gumbel noise [n, C], or the generator to make it with. ``excluded`` [n, C] marks
    columns not to be chosen. Where fewer than ``count`` columns are left, they are taken again in
    turn, so that a row is always full.
    """
    if strategy == "top":
        keys = scores.clone()
    else:
        if isinstance(random, torch.Generator):
            random = torch.empty_like(scores).exponential_(generator=random).log_().neg_()
        keys = random.clone() if strategy == "uniform" else random + scores / temperature
    if excluded is None:
        return keys.topk(count, dim=1).indices
    keys.clamp_(min=torch.finfo(keys.dtype).min)  # −inf is for the excluded alone
    order = keys.masked_fill_(excluded, float("-inf")).topk(count, dim=1).indices
    left = (~excluded).sum(1, keepdim=True).clamp(min=1)
    turn = torch.arange(count, device=scores.device).unsqueeze(0) % left
    return order.gather(1, turn)


def ordered(numbers: Tensor) -> Tensor:
    if numbers.is_cuda:
        return numbers.sort(-1).values
    return torch.from_numpy(np.sort(numbers.numpy(), axis=-1))  # many times faster than torch's


def repeated(ids: Tensor) -> Tensor:
    """Mark in each row [n, C] the ids that stand in an earlier column already."""
    if not ids.is_cpu:
        return _repeated(ids)
    # Most rows have no repeats, and need no more than a fast sort.
    in_order = ordered(ids)
    some = (in_order[:, 1:] == in_order[:, :-1]).any(1)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[some] = _repeated(ids[some])
    return again


def _repeated(ids: Tensor) -> Tensor:
    in_order, place = ids.sort(dim=1, stable=True)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = in_order[:, 1:] == in_order[:, :-1]
    return torch.zeros_like(again).scatter_(1, place, again)
