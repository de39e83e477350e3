"""The loss of single facts on a small copy of a model: what ``explain`` and ``extend`` need.

A copy holds the entities of the facts and at most so many others, and all relations, so that the
work does not grow with the number of entities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.index import Ids, Longs, Side
from nscaching.errors import UserError
from nscaching.kernels.losses import losses
from nscaching.models import Form, Model
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import choose_objective

OTHERS = 2000  # entities of a copy beside those of the facts, drawn by seed
RIVALS, RIVALS_BY_DISTANCE = 1000, 200  # entities that compete with an answer; distances cost more
NEVER = -1e9  # the score of a rival that is none


def entity_tables(model: Model) -> list[str]:
    """Return the names of the tables with a row for each entity; all others are by relation.

    A model with other parameters, or with other state by entity, is refused.
    """
    one, more = (_sizes(model, model.entities + extra) for extra in (0, 1))
    grown = [name for name in one if more[name] != one[name]]
    parameters = dict(model.named_parameters())
    shared = [n for n in parameters if n not in grown and len(parameters[n]) != model.relations]
    if shared or not set(grown) <= set(parameters):
        others = ", ".join(shared or sorted(set(grown) - set(parameters)))
        name = type(model).__name__
        raise UserError(f"{name} has more than vectors of entities and relations: {others}")
    return grown


def _sizes(model: Model, entities: int) -> dict[str, torch.Size]:
    """Return the shapes of the state of such a model with so many entities."""
    try:
        with torch.device("meta"):  # which takes no memory
            made = like(model, entities)
    except NotImplementedError:  # by a constructor that computes
        made = like(model, entities)
    return {name: tensor.shape for name, tensor in made.state_dict().items()}


def like(model: Model, entities: int) -> Model:
    """Return a model of the same kind for so many entities, its parameters not set."""
    made = type(model)(entities, model.relations, model.dim, model.norm)
    made.reciprocal = model.reciprocal
    return made


@dataclass(frozen=True)
class SmallModel:
    """A copy of a model with some of its entities: entity ``entities[i]`` has the id i."""

    model: Model
    entities: Longs  # ascending

    @classmethod
    def around(cls, model: Model, triples: Ids, dtype: torch.dtype, seed: int = 0) -> SmallModel:
        """Copy the entities of triples [n, 3] and some others, as ``dtype`` on the CPU."""
        own = np.unique(triples[:, [0, 2]]).astype(np.int64)
        others = np.setdiff1d(np.arange(model.entities), own, assume_unique=True)
        drawn = np.random.default_rng(seed).permutation(others)[:OTHERS]
        entities = np.sort(np.concatenate([own, drawn]))
        by_entity = entity_tables(model)
        state = dict(model.state_dict())
        for name in by_entity:
            state[name] = state[name][torch.from_numpy(entities).to(state[name].device)]
        small = like(model, len(entities))
        small.load_state_dict({name: tensor.cpu() for name, tensor in state.items()})
        return cls(small.to(dtype).requires_grad_(False), entities)

    def columns(self, triples: Ids) -> tuple[Tensor, Tensor, Tensor]:
        """Return head, relation and tail [n] of triples [n, 3], by the ids of the copy."""
        head, tail = (np.searchsorted(self.entities, triples[:, i]) for i in (0, 2))
        h, r, t = map(torch.from_numpy, (head, triples[:, 1].astype(np.int64), tail))
        return h, r, t


def rivals_of(model: Model) -> int:
    """Return how many entities compete with the answers."""
    return RIVALS if model.form is Form.DOT else RIVALS_BY_DISTANCE


def draw_rivals(model: Model, generator: torch.Generator) -> Tensor:
    """Return different entities [K] of a model, drawn to compete with the answers."""
    return torch.randperm(model.entities, generator=generator)[: rivals_of(model)]


def fact_losses(
    model: Model,
    config: TrainConfig,
    triples: tuple[Tensor, Tensor, Tensor],
    rivals: Tensor,
    counts: Tensor | None = None,
) -> Tensor:
    """Return the loss [n] of triples ([n], [n], [n]) by a run's own objective, both queries summed.

    The rivals [K] stand for the negatives of training, weighed by softmax(score): the hard ones
    count most, as in the cache. The answer of a query is no rival of itself. In a softmax, a rival
    may stand for as many entities as ``counts`` [K] says.
    """
    objective = choose_objective(config, model)
    hardness = config.adversarial if SAMPLERS.get(config.sampler).has_weights else 1.0
    head, relation, tail = triples
    total = torch.zeros(len(head), dtype=model.entity.dtype)
    for side in Side:
        anchor, answer = side.query(head, tail)
        asked, relations = model.asked(side, relation)
        true_head, true_tail = asked.query(anchor, answer)
        positive = model.score(true_head, relations, true_tail)
        scores = model.score_shared(side, anchor, relation, rivals)
        negative = scores.masked_fill(rivals == answer.unsqueeze(1), NEVER)
        if objective in ("softmax", "1vsall"):
            own, negative = config.scale * positive.unsqueeze(1), config.scale * negative
            negative = negative if counts is None else negative + counts.log()
            total = total + torch.cat([own, negative], dim=1).logsumexp(1) - own[:, 0]
        else:
            how = "logistic" if objective == "kvsall" else objective
            total = total + losses(how, config.margin, positive, negative, hardness)[0]
    return total
