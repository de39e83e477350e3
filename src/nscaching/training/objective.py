"""The loss and the penalty of a training run, where the configuration leaves them open."""

from nscaching.config import TrainConfig
from nscaching.errors import UserError, flag
from nscaching.kernels.losses import ALL_ENTITIES, Objective
from nscaching.models import Model
from nscaching.samplers import SAMPLERS


def penalty(config: TrainConfig, model: Model) -> float:
    """Return the penalty λ, by the model's family where the configuration leaves it open.

    Translational models scale their vectors to unit length, which a penalty cannot change.
    """
    if config.penalty is not None:
        return config.penalty
    negatives = SAMPLERS.get(config.sampler).has_negatives
    return 0.1 if model.family == "semantic" and negatives else 0.0


def choose_objective(config: TrainConfig, model: Model | type[Model]) -> Objective:
    """Return the loss of the configuration; auto: by the model's family and the sampler."""
    if config.penalty_norm == "n3" and model.family != "semantic":
        raise UserError(f"{flag('penalty_norm')} n3 is for semantic matching models; give l2")
    sampler = SAMPLERS.get(config.sampler)
    if config.objective == "auto":
        if not sampler.has_negatives:
            return "1vsall"
        if model.family == "semantic":
            return "logistic"
        return "shifted" if sampler.has_weights else "margin"
    if sampler.has_negatives == (config.objective in ALL_ENTITIES):
        none, some = "no negatives: give {} none", "negatives: give a {}"
        uses = (none if sampler.has_negatives else some).format(flag("sampler"))
        raise UserError(f"{flag('objective')} {config.objective} uses {uses}")
    return config.objective
