"""The settings of a run: those that are given, and for all others choices that fit the graph.

There are two recipes: the softmax over cached entities and a tail, and negatives one by one.
docs/defaults.md has the measurements behind the numbers.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, counted
from nscaching.kernels.sizes import FLOAT, INT
from nscaching.models import MODELS, Form
from nscaching.registry import Registry
from nscaching.runs.folder import RunFolder
from nscaching.samplers import SAMPLERS
from nscaching.samplers.objective import choose_objective

MODEL = "ComplEx"
# Who gives one of these settings asks for negatives, one by one.
OF_NEGATIVES = {
    "sampler", "margin", "negatives", "n2", "draw", "adversarial", "filter_known", "side",
    "refresh_side", "shared_candidates", "candidate_rows", "candidates", "generator",
    "generator_lr", "generator_pretrain", "entropy_bonus",
}  # fmt: skip
SOFTMAXES = ("softmax", "1vsall")

SMALL = 50_000  # training triples
DIM, MATRIX_DIM, LEAST_DIM = 200, 50, 16  # the second where relations are matrices
TABLE_BYTES, CACHE_BYTES = 2 << 30, 4 << 30  # the most of a table of entities, of all caches
BATCHES, STEPS_AN_EPOCH = (64, 1024), 80
STEPS, EPOCHS = 16_000, (10, 200)  # the most steps, within these numbers of epochs
VALIDATIONS, PATIENCE = 30, 5
# Where most facts follow from others: a weaker penalty. By whether the loss is a softmax.
REDUNDANT, PENALTIES = 0.5, {True: (0.1, 0.02), False: (0.01, 0.003)}
SCALES = {False: (15.0, 7.2), True: (4.0, 1.5)}  # of Euclidean distances: large, small graph
MANY_ANSWERS = 20


def with_settings(
    config: TrainConfig, settings: Mapping[str, Any], where: str = "configuration"
) -> TrainConfig:
    """Return the configuration with some settings changed, and names in their usual spelling."""
    values = {**config.to_dict(), **settings}
    classes: dict[str, Registry[Any]] = {"model": MODELS, "sampler": SAMPLERS, "generator": MODELS}
    for name, known in classes.items():
        if isinstance(values[name], str | type):
            values[name] = known.canonical(values[name])
    return TrainConfig.from_dict(values, where)


def settings_for(graph: KnowledgeGraph, **given: Any) -> TrainConfig:  # noqa: ANN401
    """Return the given settings, and the best known for this graph in place of all others.

    This is what ``train(graph, **given)`` trains with.
    """
    given = _of_start(given) | given
    config = recipe(given)
    config = _fill(config, given, _sizes(graph, given, config))
    return _fill(config, given, _loss(graph, given, config))


def recipe(given: Mapping[str, Any]) -> TrainConfig:
    """Return the given settings, and the choices that do not depend on the graph."""
    given = {**_of_start(given), **given}
    config = with_settings(TrainConfig(), {"model": MODEL, **given})
    model = MODELS.get(config.model)
    compiled = model.form in (Form.DOT, Form.DISTANCE)
    if config.objective == "auto" and compiled and not OF_NEGATIVES & given.keys():
        config = config.changed(objective="softmax")
    objective = choose_objective(config, model)
    if objective == "softmax":
        config = _fill(config, given, {"n1": 64, "refresh": "top"})
    if objective in SOFTMAXES:
        config = _fill(config, given, {"reciprocal": True})
    if model.family == "semantic" and objective != "kvsall":
        config = _fill(config, given, {"penalty_norm": "n3"})
        if objective in SOFTMAXES:
            config = _fill(config, given, {"optimizer": "adagrad"})
    return _fill(config, given, {"lr": 0.1} if config.optimizer.endswith("adagrad") else {})


def _of_start(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shape of the run to start from, if there is one, which has to be the same."""
    path = given.get("pretrain")
    if not isinstance(path, str) or not path:
        return {}
    try:
        _, before = RunFolder(path).read_config()
    except UserError:  # told where the parameters are read
        return {}
    return {name: before.flat()[name] for name in ("model", "dim", "norm", "reciprocal")}


def _fill(config: TrainConfig, given: Mapping[str, Any], chosen: Mapping[str, Any]) -> TrainConfig:
    return config.changed(**{name: chosen[name] for name in chosen if name not in given})


def _sizes(graph: KnowledgeGraph, given: Mapping[str, Any], config: TrainConfig) -> dict[str, Any]:
    """Return the sizes of vectors, batches and caches, and the length of the training."""
    triples, entities = max(1, len(graph.train)), len(graph.entities)
    batch = 2 ** round(math.log2(max(1, triples / STEPS_AN_EPOCH)))
    batch = given.get("batch_size", min(max(batch, BATCHES[0]), BATCHES[1]))
    epochs = min(max(STEPS * batch // triples, EPOCHS[0]), EPOCHS[1])
    epochs = given.get("epochs", epochs)
    sizes = {"batch_size": batch, "epochs": epochs, "validate_every": max(1, epochs // VALIDATIONS)}
    sizes |= {"patience": PATIENCE if config.validate_every and len(graph.valid) else 0}
    dim = MATRIX_DIM if MODELS.get(config.model).has_matrices else DIM
    while dim > LEAST_DIM and 2 * FLOAT * dim * entities > TABLE_BYTES:
        dim //= 2
    n1, keys = config.cache.n1, sum(map(len, graph.train_index.values()))
    while n1 > 1 and INT * n1 * keys > CACHE_BYTES:
        n1 //= 2
    sizes |= {"dim": dim, "n1": min(n1, max(1, entities // 2)) if n1 else 0}
    if config.objective == "softmax":
        sizes["tail"] = min(config.tail, entities)
        if config.cache.n1 + config.tail >= entities and not {"n1", "tail"} & given.keys():
            sizes |= {"n1": 0, "tail": entities}  # nothing is left to estimate
    return sizes


def _loss(
    graph: KnowledgeGraph, given: Mapping[str, Any], config: TrainConfig
) -> dict[str, float | str]:
    """Return what the loss depends on: the penalty; or norm, scale and rate; or the side."""
    model, small = MODELS.get(config.model), len(graph.train) < SMALL
    softmax = choose_objective(config, model) in SOFTMAXES
    if config.penalty_norm == "n3":
        return {"penalty": PENALTIES[softmax][redundancy(graph) > REDUNDANT]}
    if model.family == "translational" and softmax:
        # Large graphs have Euclidean distances, which are products of matrices.
        norm = given.get("norm", 1 if small and not model.complex_rows else 2)
        scale = SCALES[model.complex_rows][small]
        if norm == 1:  # a sum of d differences, or of d moduli, is so much longer
            scale /= math.sqrt((math.pi if model.complex_rows else 8 / math.pi) * config.dim) / 2
        rate = {} if config.optimizer.endswith("adagrad") else {"lr": 0.005 if small else 0.002}
        return {"norm": norm, "scale": round(scale, 2), **rate}
    if not softmax and answers(graph) > MANY_ANSWERS:
        return {"side": "uniform", "temperature": 2.0}
    return {}


def answers(graph: KnowledgeGraph) -> float:
    """Return the mean over training triples of tph + hpt, the answers of the relation's queries."""
    tph, hpt = graph.cardinality
    return float((tph + hpt)[graph.train[:, 1]].mean()) if len(graph.train) else 0.0


def redundancy(graph: KnowledgeGraph) -> float:
    """Return the share of training triples whose two entities another training triple joins too."""
    ends = graph.train[:, [0, 2]].astype(np.int64)
    pairs = ends.min(1) * len(graph.entities) + ends.max(1)
    _, pair, count = np.unique(pairs, return_inverse=True, return_counts=True)
    return float((count[pair] > 1).mean()) if len(pairs) else 0.0


def describe(config: TrainConfig) -> str:
    """Return the settings that matter most in one line."""
    objective = choose_objective(config, MODELS.get(config.model))
    parts = [config.model, f"{objective} loss with {config.sampler}"]
    if objective == "softmax":
        head = config.cache.n1 if SAMPLERS.get(config.sampler).has_cache else 0
        entities = f"{head} cached and {config.tail:,} random" if head else f"{config.tail:,}"
        parts[1] = f"softmax over {entities} entities"
    parts += [f"{config.dim} dimensions", f"batch {config.batch_size:,}"]
    parts.append(f"{config.optimizer} {config.lr:g}")
    if config.penalty:
        parts.append(f"{config.penalty_norm} penalty {config.penalty:g}")
    if config.scale != 1:
        parts.append(f"scale {config.scale:g}")
    stop = f", stops after {config.patience} validations without a gain" if config.patience else ""
    return f"{', '.join(parts)}, at most {counted(config.epochs, 'epoch')}{stop}"
