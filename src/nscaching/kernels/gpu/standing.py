"""Rankings by distances on GPUs, which keep no scores in memory."""

import torch
import triton
from torch import Tensor

from nscaching.data.index import Side
from nscaching.kernels.gpu import rank
from nscaching.kernels.standing import Asked, Tile
from nscaching.models import Form, Model

PAIRS = 1 << 32
"""Pairs of queries and entities of a ranking after which its progress is heard."""

AT_ONCE = 1 << 18
"""Entities of which a ranking keeps a second, transposed copy at a time."""

SPLITS = 16
"""Programs that share the known answers of a query: there may be millions."""

LIKE_MANY = 1 << 10
"""Rows that torch scales to unit length as it scales any more of them; of few, sums may differ."""


def is_fused(model: Model) -> bool:
    """Say whether a ranking needs no scores in memory."""
    return model.form is Form.DISTANCE and model.entity.dtype == torch.float32


def fused_tile(model: Model) -> Tile:
    queries = 64 * max(1, PAIRS // (64 * model.entities))
    return Tile(queries, min(AT_ONCE, model.entities), kept=False)


def stand_fused(model: Model, side: Side, asked: Asked, width: int) -> Tensor:
    """Count [3, n] among all entities; ``width`` of them are transposed at once.

    All scores come from ``rank.measure``, so that equal rows have equal scores, to the last bit.
    """
    side, relation = model.asked(side, asked.relation)
    query = model.query(side, asked.anchor, relation).T.contiguous()  # [D, n]
    weight, (size, n), answer = model.weight_of(relation), query.shape, asked.answer
    shape = {"D": size, "NORM": model.metric, "HAS_WEIGHT": weight is not None}
    given = query if weight is None else weight.contiguous()
    target = torch.empty(n, device=answer.device)
    own = model.entity_rows(answer[torch.arange(max(n, LIKE_MANY), device=answer.device) % n])
    own = own.T.contiguous()
    rank.own_score[(n,)](query, own, given, target, n, own.shape[1], **shape, num_warps=1)
    out = torch.zeros(3, n, dtype=torch.int64, device=answer.device)
    firsts = range(0, model.entities, width)
    for first, known in zip(firsts, asked.cuts(firsts, model.entities), strict=True):
        last = min(first + width, model.entities)
        rows = model.entity_rows(torch.arange(first, last, device=answer.device))
        tables = query, rows.T.contiguous(), given, answer, target
        tiles = triton.cdiv(n, 64) * triton.cdiv(last - first, 128)
        rank.stand[(tiles,)](
            *tables, out, n, last - first, first, **shape, QUERIES=64, ROWS=128, num_warps=8
        )
        if known is not None:
            rank.take_known[(n, SPLITS)](
                *tables, known.start, known.end, known.answers, out, n, last - first, first,
                **shape, BLOCK=64, num_warps=2,
            )  # fmt: skip
    return out
