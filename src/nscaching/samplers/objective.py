"""The loss and the penalty of a training run, where the configuration leaves them open."""

from collections.abc import Iterable, Sequence
from typing import get_type_hints

from nscaching.config import GROUPS, TrainConfig, no_cache
from nscaching.errors import UserError, flag
from nscaching.kernels.losses import ALL_ENTITIES, Objective
from nscaching.models import MODELS, Model
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
    objective = _objective(config, model)
    _check_settings_of_softmax(config, objective)
    return objective


def _objective(config: TrainConfig, model: Model | type[Model]) -> Objective:
    sampler = SAMPLERS.get(config.sampler)
    if config.objective == "auto":
        if not sampler.has_negatives:
            return "1vsall"
        if model.family == "semantic":
            return "logistic"
        return "shifted" if sampler.has_weights else "margin"
    if config.objective == "softmax" and not sampler.has_rivals:
        able = [name for name in SAMPLERS.names() if SAMPLERS.get(name).has_rivals]
        known = f"give {flag('sampler')} {_either(able)}"
        raise UserError(f"{flag('objective')} softmax does not go with {config.sampler}: {known}")
    if sampler.has_negatives == (config.objective in ALL_ENTITIES):
        none, some = "no negatives: give {} none", "negatives: give a {}"
        uses = (none if sampler.has_negatives else some).format(flag("sampler"))
        raise UserError(f"{flag('objective')} {config.objective} uses {uses}")
    return config.objective


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


# Settings that only some objectives look at, each with the value that changes nothing.
OF_SOFTMAX: dict[str, tuple[object, tuple[Objective, ...]]] = {
    "reciprocal": (False, ("softmax", "1vsall", "kvsall")),
    "relation_weight": (0.0, ("softmax", "1vsall")),
    "scale": (1.0, ("softmax", "1vsall")),
}

OF_SINGLE_NEGATIVES = {
    "margin", "n2", "draw", "side", "refresh_side", "shared_candidates", "candidate_rows",
    "adversarial", "exchange", "strata",
}  # fmt: skip
OF_CACHES, OF_GENERATORS = (set(get_type_hints(kind)) for kind in GROUPS.values())


def without_effect(
    config: TrainConfig, objective: Objective, names: Iterable[str]
) -> dict[str, str]:
    """Return those of some settings that the others make useless, each with these others."""
    sampler = SAMPLERS.get(config.sampler)
    of_loss, of_sampler = set[str](), set[str]()
    if not sampler.has_weights:
        of_sampler.add("adversarial")
    if config.sampler in SAMPLERS.names():  # a sampler of the user's may look at anything
        if not sampler.has_generator:
            of_sampler |= OF_GENERATORS
        if not sampler.has_cache:
            of_sampler |= OF_CACHES - ({"n1"} if sampler.has_generator else set())
        if not (sampler.has_cache or sampler.has_generator):
            of_sampler.add("side")
    of_loss |= {"tail", "near"} if objective != "softmax" else OF_SINGLE_NEGATIVES
    if objective not in ("margin", "shifted"):
        of_loss.add("margin")
    of_model = {"norm"} if MODELS.get(config.model).family == "semantic" else set()
    of_optimizer = {"adagrad_start"} if not config.optimizer.endswith("adagrad") else set()
    refresh = config.cache.refresh
    reasons = (
        ({"temperature"} if refresh != "importance" else set(), f"{flag('refresh')} {refresh}"),
        (of_optimizer, f"{flag('optimizer')} {config.optimizer}"),
        (of_loss, f"{flag('objective')} {objective}"),
        (of_sampler, f"{flag('sampler')} {config.sampler}"),
        (of_model, f"{flag('model')} {config.model}"),
    )
    return {name: why for name in names for unused, why in reasons if name in unused}


def _check_settings_of_softmax(config: TrainConfig, objective: Objective) -> None:
    for name, (neutral, objectives) in OF_SOFTMAX.items():
        if getattr(config, name) != neutral and objective not in objectives:
            given = f"{flag(name)} goes with {flag('objective')} {_either(objectives)}"
            raise UserError(f"{given}, not with {objective}")
    if objective != "softmax" and config.cache.n1 == 0:
        raise no_cache()
    if objective == "softmax" and (config.negatives or config.filter_known):
        what = flag("negatives") if config.negatives else flag("filter_known")
        raise UserError(f"{flag('objective')} softmax draws no single negatives: leave out {what}")
    if objective == "softmax" and config.cache.candidates == "slots":
        what = f"{flag('candidates')} slots"
        raise UserError(f"{flag('objective')} softmax caches each entity once: leave out {what}")
