"""Fixed distributions: uniform (Bordes et al., 2013) and Bernoulli (Wang et al., 2014)."""

import dataclasses
from typing import ClassVar

from nscaching.kernels.batch import Batch, Negatives
from nscaching.models import Model
from nscaching.samplers.base import SAMPLERS, Sampler
from nscaching.samplers.draws import SideRule


@SAMPLERS.register("uniform")
class Uniform(Sampler):
    """Replaces the head or the tail, by a fair coin, with an entity drawn uniformly."""

    side: ClassVar[SideRule] = "uniform"
    one_side = True
    has_rivals = True
    in_torch = False

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        if not self.config.filter_known:
            return self.draws.draw(batch, (), self.count)
        replace_head = self.choose_head(batch)
        entity = self.draws.unknown_entities(batch, replace_head, self.count)
        return batch.corrupt(replace_head, entity, entity)

    def phase(self) -> object:
        return "draw"


@SAMPLERS.register("bernoulli")
class Bernoulli(Uniform):
    """As uniform, but the head is replaced with probability tph / (tph + hpt) of the relation."""

    side = "bernoulli"


@SAMPLERS.register("self-adversarial")
class SelfAdversarial(Bernoulli):
    """Many negatives as Bernoulli draws them, weighted by the model's scores (Sun et al., 2019).

    The k-th negative of a triple has the weight softmax(α·f)ₖ, a constant in the gradient.
    """

    has_rivals = False
    has_weights = True
    usual_count = 64

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        drawn = super().negatives(batch, model)
        return dataclasses.replace(drawn, adversarial=self.config.adversarial)


@SAMPLERS.register("none")
class NoSampler(Sampler):
    """No negatives: the objectives 1vsall and kvsall compare every triple with all entities."""

    has_negatives = False
    usual_count = 0

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        none = batch.relation.new_empty(len(batch), 0)
        return Negatives(none, none)

    def phase(self) -> object:
        """All steps do the same, unless the number of queries varies."""
        return None if self.config.objective == "kvsall" else "all"
