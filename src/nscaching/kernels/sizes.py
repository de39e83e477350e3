"""The bytes that learners and refreshes allocate, computed from the shapes of a model."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from nscaching.kernels.codes import KINDS
from nscaching.models import Form, Model

FLOAT, INT, LONG = 4, 4, 8
HEAP = 32 << 20  # smaller tables come from the C library's heap, which may not shrink afterwards


class Learned(NamedTuple):
    """The persistent bytes of a model that learns."""

    state: int = 0
    optimizer: int = 0
    gradients: int = 0
    ready: int = 0
    """Rows of unit length that compiled steps keep beside the parameters."""


def size(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors, which may be on torch's meta device."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def compiles(kernels: str, model: Model | None, optimizer: str = "adam") -> bool:
    """Tell whether these kernels have compiled gradient steps with negatives for a model."""
    return kernels != "reference" and type(model) in KINDS and optimizer != "adagrad"


def learned(model: Model, optimizer: str, compiled: str = "") -> Learned:
    """Return the bytes of a model; ``compiled`` names the kernels of compiled steps, if any."""
    tables, state = dict(model.named_parameters()), size(model.state_dict().values())
    parameters = size(tables.values())
    moments = (1 if optimizer == "adagrad" else 2) * parameters
    if not compiled:  # torch's own optimizers count the steps of each table
        counts = 0 if optimizer == "row-adam" else FLOAT * len(tables)
        return Learned(state, moments + counts, parameters)
    ready = size(tables[name] for name in model.normalized)
    projected = tables.pop("entity_projection", None) is not None
    ready += FLOAT * model.entities if projected else 0
    if compiled == "numba":  # which marks the rows that moved
        return Learned(state, moments, 0, ready + model.entities)
    # Triton sums gradients as whole numbers, and marks the rows that have one.
    numbers = sum(table.numel() for table in tables.values())
    numbers += model.entities if projected else 1
    return Learned(state, moments, LONG * numbers + INT * (model.entities + model.relations), ready)


def step(model: Model, batch: int, count: int, compiled: bool) -> int:
    """Return about the bytes of a gradient step over ``count`` entities for each triple."""
    pairs, row = batch * count, FLOAT * max(model.entity.shape[1], model.dim)
    if compiled:  # ids, scores and slopes of pairs; gradients of entities and of relations
        numbers = 16 * LONG * (pairs + batch)
        return numbers + row * (min(pairs + batch, model.entities) + 4 * batch)
    # Matrices of relations are copied, once for at least 16 vectors (models/grouped.py).
    matrix = FLOAT * max(table.shape[1:].numel() for table in model.parameters())
    copies = 2 * pairs // 16 + min(2 * pairs, model.relations)
    return 2 * size([model.entity]) + (9 * row + 6 * LONG) * pairs + 3 * matrix * copies


def against_all(model: Model, queries: int, gradients: bool) -> int:
    """Return about the bytes of scoring all entities for some queries: a step, or a ranking."""
    table = size([model.entity])
    # Scores, their softmax and the gradients of both; or scores by relation, joined, in order,
    # weighted.
    score = 4 * FLOAT
    if model.broadcasts:
        score += 3 * FLOAT * model.entity.shape[1]
    # Autograd makes a gradient of the table for each side and sums them.
    tables = (6 if gradients else 2) * table
    if model.form in (Form.SHIFTED, Form.PROJECTED):  # which move all rows for each relation
        moved = min(queries, model.relations) * table
        # Autograd keeps the moved rows; a ranking frees them, which the heap may not give back.
        kept = 3 * moved if gradients else moved * (table <= HEAP)
        tables = (6 if gradients else 4) * table + kept
    return queries * model.entities * score + tables
