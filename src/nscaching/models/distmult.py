"""DistMult (Yang et al., 2015): a bilinear form with a diagonal matrix."""

from torch import Tensor

from nscaching.data.index import Side
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("DistMult")
class DistMult(Model):
    """f(h, r, t) = Σᵢ hᵢ·rᵢ·tᵢ; h, r, t ∈ ℝᵈ. (t, r, h) has the same score: no direction."""

    family = "semantic"
    form = Form.DOT
    widths = (1, 1)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return (h * self.relation_rows(relation) * t).sum(-1)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return anchor ∘ r, for either side."""
        return self.entity_rows(anchor) * self.relation_rows(relation)
