"""The entities whose vectors are nearest to the vector of one entity."""

from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, unknown
from nscaching.evaluation.chunks import Chunks
from nscaching.models import Model, finite

By = Literal["cosine", "distance"]


def neighbours(
    model: Model, graph: KnowledgeGraph, name: str, top: int = 10, by: By = "cosine"
) -> dict[str, Any]:
    """Return the entities nearest to the one of a name or label, itself left out.

    By the cosine of the vectors, or by their Euclidean distance.
    """
    if top < 1:
        raise UserError(f"{flag('top')} must be at least 1, not {top}")
    if by not in get_args(By):
        raise unknown(f"value of {flag('by')}:", by, get_args(By))
    entity = graph.entity_id(name)
    nearness = finite(_nearness(model, entity, by))
    # Equally near ones stay in the order of their ids.
    order = torch.argsort(nearness, descending=True, stable=True)
    nearest = order[order != entity][:top].tolist()
    sign = 1 if by == "cosine" else -1
    return {
        "entity": graph.entities[entity],
        "label": graph.label(entity),
        "by": by,
        "neighbours": [
            {
                "rank": rank,
                "name": graph.entities[other],
                "label": graph.label(other),
                by: sign * float(nearness[other]),
            }
            for rank, other in enumerate(nearest, 1)
        ],
    }


@torch.no_grad()
def _nearness(model: Model, entity: int, by: By, piece: int = 65536) -> Tensor:
    """Return for all entities [|E|] the cosine, or the distance with a minus."""
    everyone = torch.arange(model.entities, device=model.entity.device)
    own = model.entity_rows(everyone[entity : entity + 1]).double()

    def near(some: slice) -> Tensor:
        rows = model.entity_rows(everyone[some]).double()
        if by == "cosine":
            # Not a matrix product: that rounds a row by its place, and equal ones must stay equal.
            found = (F.normalize(rows, dim=-1) * F.normalize(own, dim=-1)).sum(-1)
        else:
            found = -torch.linalg.vector_norm(rows - own, dim=-1)
        return found.cpu()

    chunks = Chunks(min(piece, len(everyone)), "entities")
    return torch.cat([part for _, part in chunks.over(len(everyone), near)])
