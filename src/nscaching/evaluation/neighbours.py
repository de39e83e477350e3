"""The entities whose vectors are nearest to the vector of one entity."""

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscaching.config import check_type
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.evaluation.ranking import Floats, row_by_row
from nscaching.models import Model

By = Literal["cosine", "distance"]


def neighbours(
    model: Model, graph: KnowledgeGraph, name: str, top: int = 10, by: By = "cosine"
) -> dict[str, Any]:
    """Return the entities nearest to the one of a name or label, itself left out.

    By the cosine of the vectors, or by their Euclidean distance.
    """
    if top < 1:
        raise UserError(f"{flag('top')} must be at least 1, not {top}")
    check_type(flag("by"), By, by)
    entity = graph.entity_id(name)
    nearness = _nearness(model, entity, by)
    order = np.argsort(-nearness, kind="stable")  # equally near ones in the order of their ids
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


def _nearness(model: Model, entity: int, by: By, piece: int = 65536) -> Floats:
    """Return for all entities [|E|] the cosine, or the distance with a minus."""
    everyone = torch.arange(model.entities, device=model.entity.device)

    def near(some: slice) -> Tensor:
        own, rows = (model.entity_rows(everyone[ids]).double() for ids in ([entity], some))
        if by == "distance":
            distance: Tensor = torch.linalg.vector_norm(rows - own, dim=-1)
            return -distance
        # Not a matrix product: that rounds a row by its place, and equal ones must stay equal.
        return (F.normalize(rows, dim=-1) * F.normalize(own, dim=-1)).sum(-1)

    return row_by_row(len(everyone), near, "entities", piece)
