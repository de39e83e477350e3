"""RotatE (Sun et al., 2019): a relation turns each complex number of the head by an angle."""

import math

import torch
from torch import Tensor, nn

from nscaching.data.index import Side
from nscaching.models.arithmetic import times
from nscaching.models.base import MODELS, Form, Model


@MODELS.register("RotatE")
class RotatE(Model):
    """f(h, r, t) = −‖h∘r − t‖ with |rᵢ| = 1; h, t ∈ ℂᵈ, stored as rows [real | imaginary] of 2d.

    The relation is a row of d phases. Norm 1 is the sum of the d moduli, norm 2 the Euclidean
    length: neither changes when everything is turned, so that ‖h∘r − t‖ = ‖h − conj(r)∘t‖.
    """

    family = "translational"
    form = Form.DISTANCE
    complex_rows = True
    widths = (2, 1)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Start with Xavier's distribution, the phases with any angle."""
        super().reset(generator)
        nn.init.uniform_(self.relation, -math.pi, math.pi, generator=generator)

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return -self.length(self.query(Side.TAIL, head, relation) - self.entity_rows(tail))

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h∘r for the tail, conj(r)∘t for the head."""
        phase = self.relation_rows(relation)
        re, im = self.entity_rows(anchor).chunk(2, dim=-1)
        phase = phase if side is Side.TAIL else -phase
        return torch.cat(times(re, im, phase.cos(), phase.sin()), dim=-1)
