"""The scores of any model, for answers; the twin of ``numpy_scores`` that every model has."""

import torch
from torch import Tensor

from nscaching.data.index import Longs, Side
from nscaching.evaluation.candidates import relation_scores
from nscaching.evaluation.ranking import chunk_size, id_tensor
from nscaching.evaluation.shortlist import Scored
from nscaching.models import Model


class TorchScores:
    """See ``Scores``."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @torch.no_grad()
    def of_entities(self, side: Side, anchor: Longs, relation: Longs) -> Scored:
        device = self.model.entity.device
        anchors, relations = id_tensor(anchor, device), id_tensor(relation, device)
        return _array(self.model.score_all(side, anchors, relations))

    @torch.no_grad()
    def of_relations(self, head: Longs, tail: Longs) -> Scored:
        device = self.model.entity.device
        heads, tails = id_tensor(head, device), id_tensor(tail, device)
        return _array(relation_scores(self.model, heads, tails))

    def at_once(self) -> int:
        return chunk_size(self.model)


def _array(scores: Tensor) -> Scored:
    found: Scored = scores.float().cpu().numpy()
    return found
