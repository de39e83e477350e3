"""The bytes that learners and refreshes allocate, computed from the shapes of a model."""

from collections.abc import Iterable

from torch import Tensor

from nscaching.kernels.codes import KINDS
from nscaching.kernels.compiled import has_gradients, has_queries, is_compact
from nscaching.models import Form, Model
from nscaching.models.arithmetic import MOST_ROWS

FLOAT, INT, LONG = 4, 4, 8
HEAP = 32 << 20  # smaller tables come from the C library's heap, which may not shrink afterwards


def size(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors, which may be on torch's meta device."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Learned:
    """The bytes of a model that learns."""

    def __init__(
        self,
        model: Model,
        optimizer: str,
        kernels: str,
        softmax: bool = False,
        places: int | None = None,
    ) -> None:
        """Take the kernels of gradient steps, with negatives or of the cached softmax.

        "reference": autograd makes the steps. ``places`` is the number of entities that a batch can
        name, if only the rows that it names move; None: all rows move.
        """
        self.model, self.table = model, size([model.entity])
        known = has_queries(model) if softmax else has_gradients(model, kernels)
        self.compiled = known and kernels != "reference"
        tables = dict(model.named_parameters())
        self.state, self.gradients = size(model.state_dict().values()), size(tables.values())
        self.optimizer = (1 if optimizer == "adagrad" else 2) * self.gradients
        if optimizer == "row-adagrad":
            self.optimizer = FLOAT * sum(map(len, tables.values()))
        self.ready = 0  # rows of unit length that compiled steps keep beside the parameters
        self.rebuilt = 0  # of these, rows that a checkpoint leaves out
        if not self.compiled:  # torch's own optimizers count the steps of each table
            self.optimizer += 0 if optimizer.startswith("row-") else FLOAT * len(tables)
            return
        self.ready = size(tables[name] for name in model.normalized)
        projected = tables.pop("entity_projection", None) is not None
        self.ready += FLOAT * model.entities if projected else 0
        if kernels == "numba":  # which marks the rows that moved
            self.gradients, self.ready = 0, self.ready + model.entities
            self.ready += INT * model.entities if softmax else 0  # places in the tail
            return
        # Triton sums gradients as whole numbers in slots, and writes down whose each slot is.
        compact = places is not None and is_compact(model.entities, places)
        slots = places if places is not None and compact else model.entities
        self.rebuilt = self.table if compact and "entity" in model.normalized else 0
        row = tables.pop("entity").shape[1]
        numbers = sum(table.numel() for table in tables.values()) + slots * row
        numbers += slots if projected else 1
        ids = slots + model.relations + (model.entities if compact else 1)
        self.gradients = LONG * numbers + INT * ids

    @property
    def kept(self) -> int:
        return self.state + self.optimizer + self.ready

    @property
    def in_checkpoint(self) -> int:
        return self.kept - self.rebuilt

    def step(self, batch: int, count: int) -> int:
        """Return about the bytes of a gradient step over ``count`` entities for each triple."""
        model, pairs = self.model, batch * count
        row = FLOAT * max(model.entity.shape[1], model.dim)
        if self.compiled:  # ids, scores and slopes of pairs; gradients of entities and of relations
            numbers = 16 * LONG * (pairs + batch)
            made = row * 4 * batch if type(model) in KINDS else self._queries(batch)
            return numbers + row * min(pairs + batch, model.entities) + made
        # Matrices of relations are copied, once for at least 16 vectors (models/arithmetic.py).
        matrix = FLOAT * max(table.shape[1:].numel() for table in model.parameters())
        copies = 2 * pairs // 16 + min(2 * pairs, model.relations)
        return 2 * self.table + (9 * row + 6 * LONG) * pairs + 3 * matrix * copies

    def _queries(self, count: int) -> int:
        """Return about the bytes of query vectors, of what made them, and of gradients of both."""
        size, relation = self.model.entity.shape[1], self.model.relation
        # Of RESCAL's matrices: gradients, products of head and tail, and gradients of these.
        numbers = 8 * size + 3 * max(0, relation.shape[1] - size)
        # Autograd makes a gradient of all relations for each side, and sums them.
        tables = 0 if type(self.model) in KINDS else 4 * relation.numel()
        return FLOAT * (count * numbers + tables)

    def softmax(self, batch: int, cached: int, tail: int) -> int:
        """Return about the bytes of a step that compares both queries with a cache and a tail."""
        queries, pairs = 2 * batch, 2 * batch * (1 + cached)
        if self.compiled:
            size, blocks = self.model.entity.shape[1], queries // 256 + 1
            # Gradients of the tail and of entities.
            rows = blocks * tail + min(pairs + queries + tail, self.model.entities)
            numbers = 8 * LONG * pairs + 3 * FLOAT * queries * tail
            return FLOAT * size * rows + self._queries(queries) + numbers
        # Ids, random numbers, masks and scores of the pairs, with their gradients.
        return self.step(2 * batch, 2 + cached) + 12 * LONG * batch * (cached + tail)

    def against_all(
        self, queries: int, gradients: bool, entities: int | None = None, kept: bool = True
    ) -> int:
        """Return about the bytes of scoring all entities for some queries: a step, or a ranking.

        A ranking may score some of the entities at once, and keep no scores.
        """
        model = self.model
        entities = model.entities if entities is None else entities
        table = self.table * entities // max(1, model.entities)
        # Scores, their softmax and the gradients of both; or scores by relation, joined, in order,
        # weighted.
        score = 4 * FLOAT
        if model.broadcasts:
            score += 3 * FLOAT * model.entity.shape[1]
        # Autograd makes a gradient of the table for each side and sums them; a ranking copies rows,
        # of a large table in pieces.
        tables = 6 * table if gradients else 3 * min(table, FLOAT * MOST_ROWS)
        if model.form in (Form.SHIFTED, Form.PROJECTED):  # which move all rows for each relation
            moved = min(queries, model.relations) * table
            # Autograd keeps the moved rows; a ranking frees them, which the heap may not give back.
            held = 3 * moved if gradients else moved * (table <= HEAP)
            tables = (6 if gradients else 4) * table + held
        return queries * entities * score * kept + tables
