"""What is in memory for a step or a chunk only: about how many bytes, a function for each.

Unlike what lasts these are bounds by the largest tensors, a few of which live at once.
"""

from __future__ import annotations

from nscaching.evaluation.ranking import SCORE_BYTES, chunk_size
from nscaching.kernels.codes import DIRECTIONS, FORMS, KINDS, TRANSD
from nscaching.models import Form, Model
from nscaching.models.grouped import LEAST, MOST
from nscaching.training.memory.lasting import FLOAT, LONG, size
from nscaching.training.memory.plan import Plan

__all__ = ["building", "ranking_chunk", "training_step"]

# Numbers for each triple while its index is built, and while its columns are put together.
INDEX_NUMBERS = 8
# Up to this size the C library takes tables from a heap, where scores that stay between them keep
# it from giving the room back.
HEAP = 32 << 20


def building(plan: Plan) -> int:
    """Return the bytes that sorting all triples takes, when indices are built."""
    return INDEX_NUMBERS * LONG * plan.every_triple


def training_step(plan: Plan) -> int:
    """Return the bytes that one step takes beyond what lasts."""
    learning = _compiled_step(plan) if plan.compiled else _autograd_step(plan)
    return max(learning, _drawing(plan))


def ranking_chunk(plan: Plan) -> int:
    """Return the bytes that a chunk of queries against all entities takes."""
    model = plan.model
    most = max(len(plan.graph.valid), len(plan.graph.test))
    if not most:
        return 0
    at_once = min(chunk_size(model), most)
    width = 3 * FLOAT * model.entity.shape[1] if model.broadcasts else 0
    scattered = 0
    if _moves(model) and size(model.entity) <= HEAP:
        scattered = min(at_once, model.relations) * size(model.entity)
    return at_once * model.entities * (SCORE_BYTES + width) + _tables(model) + scattered


def _moves(model: Model) -> bool:
    """Tell whether every relation of a chunk has a table of moved rows."""
    return model.form in (Form.SHIFTED, Form.PROJECTED)


def _tables(model: Model) -> int:
    """Return the bytes of the rows of all entities as they enter the score: gathered, scaled, …"""
    return (4 if _moves(model) else 2) * size(model.entity) + 2 * LONG * model.entities


def _compiled_step(plan: Plan) -> int:
    count = plan.negatives
    apart = _gradients_apart(plan.model, plan.batch, count) if plan.kernels == "numba" else 0
    return apart + (18 + 8 * (1 + count)) * LONG * plan.batch


def _gradients_apart(model: Model, batch: int, count: int) -> int:
    """Return the bytes of what loops on the CPU keep of a batch; on a GPU there are tables.

    Of one negative these are gradients apart for each triple; of many, or candidates, what each
    triple has beside them, and a gradient for each entity. And places of entities, in order.
    """
    kind, size = KINDS[type(model)], model.entity.shape[1]
    relation = (2 if kind in DIRECTIONS else 1) * model.relation.shape[1]
    places = batch * (3 if count == 1 else 2 + count)
    by_entities = places if count == 1 else min(places, model.entities) + 2 * batch
    width = size + (1 if kind == TRANSD else 0)
    return FLOAT * (batch * relation + by_entities * width) + 5 * LONG * places


def _autograd_step(plan: Plan) -> int:
    model, batch = plan.model, plan.batch
    row = FLOAT * max(model.entity.shape[1], model.dim)
    # A gradient of each table that is to be added to the one that is there.
    tables = 2 * size(model.entity)
    if plan.objective in ("1vsall", "kvsall"):
        return tables + _against_all(model, batch, sides=2)
    negatives = batch * plan.negatives
    vectors = row * (12 * batch + 6 * negatives)
    return tables + vectors + _matrices(model, 2 * (batch + negatives))


def _matrices(model: Model, vectors: int) -> int:
    """Return the bytes of the matrices of relations by which so many vectors are multiplied."""
    width, dim = model.relation.shape[1], model.dim
    square = getattr(model, "matrix", model.relation).shape[1] == dim * dim
    if not square or (width == dim and not hasattr(model, "matrix")):
        return 0
    block = min(MOST, max(LEAST, vectors // model.relations))
    blocks = vectors // block + min(vectors, model.relations)
    return 3 * FLOAT * blocks * (dim * dim + 2 * block * dim)


def _against_all(model: Model, batch: int, sides: int) -> int:
    """Return the bytes of a loss over all entities: scores, their softmax and its gradient."""
    scores = 3 * sides * FLOAT * batch * model.entities
    if model.broadcasts:
        return scores + 3 * sides * batch * size(model.entity)
    moved = (
        sides * min(batch, model.relations) if model.form not in (Form.DOT, Form.DISTANCE) else 0
    )
    return scores + (4 + 3 * moved) * size(model.entity)


def _drawing(plan: Plan) -> int:
    """Return the bytes of drawing negatives and refreshing what they are drawn from."""
    model, config = plan.model, plan.config
    if plan.generator is not None:
        return _generating(plan, plan.generator)
    if not plan.sampler.has_cache:
        return 10 * LONG * plan.batch * max(1, plan.negatives)
    plain = config.filter_known or model.form not in FORMS or config.draw != "uniform"
    rounded = config.candidate_rows == "bfloat16"
    if plan.kernels != "reference" and not plain:
        queries = 2 * 2 * size(model.entity) // model.entities * plan.batch
        on_cpu = plan.kernels == "numba" and (rounded or not plan.compiled)
        return queries + (4 * size(model.entity) if on_cpu else 0)
    keys = min(plan.batch, max(plan.all_keys, 1))
    candidates = keys * (config.n1 + config.n2)
    table = 3 * size(model.entity) if rounded or candidates > model.entities else 0
    return 12 * LONG * candidates + table + (64 << 20 if plan.device.type == "cpu" else 3 << 30)


def _generating(plan: Plan, model: Model) -> int:
    tables = 2 * size(model.entity)  # gradients by autograd
    if plan.config.sampler.casefold() == "igan":
        return tables + 2 * _against_all(model, plan.batch, sides=1)
    candidates, on_cpu = plan.batch * plan.config.n1, plan.kernels == "numba"
    if plan.compiled_generator:  # ids, scores, chances, slopes; rows are read where they are
        apart = _gradients_apart(model, plan.batch, plan.config.n1) if on_cpu else 0
        return apart + 12 * LONG * candidates
    row = FLOAT * model.entity.shape[1]
    return tables + candidates * (6 * row + 6 * LONG) + _matrices(model, 2 * candidates)
