"""TransE (Bordes et al., 2013): a relation is a translation."""

from typing import ClassVar

from torch import Tensor

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("TransE")
class TransE(Model):
    """f(h, r, t) = −‖h + r − t‖ with entity vectors h, t of unit length; h, r, t ∈ ℝᵈ."""

    family = "translational"
    form = Form.DISTANCE
    widths = (1, 1)
    normalized: ClassVar[tuple[str, ...]] = ("entity",)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return -self.length(h + self.relation_rows(relation) - t)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h + r for the tail, t − r for the head; h and t as the relation moves them."""
        r = self.relation_rows(relation)
        moved = self._moved(self.entity_rows(anchor), anchor, relation)
        return moved + (r if side is Side.TAIL else -r)
