"""What stays in memory, or on disk, as long as a training lasts: bytes, a function for each."""

from __future__ import annotations

from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.kernels.codes import FORMS, KINDS, TRANSD, UNIT
from nscaching.models import Model
from nscaching.training.memory.plan import Plan

__all__ = [
    "best_copy",
    "caches",
    "generator",
    "gradients",
    "graph_indices",
    "indices_there",
    "known_triples",
    "model_state",
    "optimizer_state",
    "queries_of_keys",
    "ranked_queries",
    "ready_rows",
    "run_folder",
    "start",
    "training_triples",
]

FLOAT, LONG, INT = 4, 8, 4
CHECKPOINTS = 3  # the two newest, and the one that is being written
CHECKPOINT_REST = 20_000  # of each: two random states, the names, where it is
EPOCH_LINE = 600  # of metrics.jsonl, with a ranking
PAGES = 400_000  # card, plot and report


def size(tensor: Tensor) -> int:
    """Return the bytes of a tensor's numbers, whether it has them or not."""
    return tensor.numel() * tensor.element_size()


def model_state(model: Model) -> int:
    """Return the bytes of parameters and of what is saved with them."""
    return sum(map(size, model.state_dict().values()))


def _parameters(model: Model) -> int:
    return sum(map(size, model.parameters()))


def best_copy(plan: Plan) -> int:
    """Return the bytes of the copy of the best parameters."""
    return model_state(plan.model)


def start(plan: Plan) -> int:
    """Return the bytes of the parameters that a training starts from."""
    return model_state(plan.model) if plan.config.pretrain else 0


def optimizer_state(plan: Plan) -> int:
    """Return the bytes of the optimizer's means: Adam's two for each number, Adagrad's one."""
    return _optimizer_state(plan.model, plan)


def _optimizer_state(model: Model, plan: Plan, optimizer: str = "") -> int:
    means = 1 if (optimizer or plan.config.optimizer) == "adagrad" else 2
    state = means * _parameters(model)
    own_count = (optimizer or plan.config.optimizer) != "row-adam" and not plan.compiled
    # Torch's optimizers count the steps of each table.
    return state + (FLOAT * len(list(model.parameters())) if own_count else 0)


def gradients(plan: Plan) -> int:
    """Return the bytes of tables of gradients; loops on the CPU keep those of a batch only."""
    if not plan.compiled:
        return _parameters(plan.model)
    return _whole_gradients(plan.model) if plan.kernels == "triton" else 0


def _whole_gradients(model: Model) -> int:
    """Return the bytes of gradients that are summed as whole numbers, and marks of their rows."""
    numbers = sum(t.numel() for name, t in model.named_parameters() if name != "entity_projection")
    shifts = model.entities if KINDS[type(model)] == TRANSD else 1
    return LONG * (numbers + shifts) + INT * (model.entities + model.relations)


def ready_rows(plan: Plan) -> int:
    """Return the bytes of rows that compiled steps keep scaled to unit length, shifted, rounded."""
    model = plan.model
    rows = _unit_rows(plan)
    if plan.compiled and plan.kernels == "triton" and plan.config.candidate_rows == "bfloat16":
        rows += size(model.entity) // 2
    known = plan.config.filter_known or model.form not in FORMS
    if plan.kernels == "numba" and plan.sampler.has_cache and not known:
        rows += LONG * plan.threads * model.entities  # what each thread has seen of a row
    return rows


def _unit_rows(plan: Plan) -> int:
    """Return the bytes of those rows that a checkpoint holds too."""
    if not plan.compiled:
        return 0
    moved = plan.model.entities if plan.kernels == "numba" else 0  # which of them moved
    return _unit_rows_of(plan.model) + moved


def _unit_rows_of(model: Model) -> int:
    kind, tables = KINDS[type(model)], dict(model.named_parameters())
    rows = sum(size(tables[name]) for name in UNIT.get(kind, ()))
    return rows + (FLOAT * model.entities if kind == TRANSD else 0)


def caches(plan: Plan) -> int:
    """Return the bytes of the negative caches: N1 entities for each key of both sides."""
    return INT * plan.all_keys * plan.config.n1 if plan.sampler.has_cache else 0


def queries_of_keys(plan: Plan) -> int:
    """Return the bytes of the query that each key of a cache stands for."""
    return 2 * LONG * plan.all_keys if plan.sampler.has_cache else 0


def known_triples(plan: Plan) -> int:
    """Return the bytes by which known triples are kept out of the negatives, or out of the loss."""
    found = 0
    if plan.config.filter_known:
        found += 2 * LONG * plan.triples + plan.all_keys
    if plan.objective == "kvsall":
        found += 2 * LONG * plan.triples
        if plan.device.type != "cpu":  # where they are not the index itself
            found += LONG * (plan.all_keys + 2)
    return found


def generator(plan: Plan) -> int:
    """Return the bytes of a generator: parameters, gradients and Adam's means."""
    if plan.generator is None:
        return 0
    model = plan.generator
    if plan.compiled_generator:
        tables = model_state(model) + 2 * _parameters(model) + _unit_rows_of(model)
        return tables + (_whole_gradients(model) if plan.kernels == "triton" else model.entities)
    state = 2 * _parameters(model) + FLOAT * len(list(model.parameters()))
    return model_state(model) + _parameters(model) + state


def training_triples(plan: Plan) -> int:
    """Return the bytes of the triples with their two keys, and of the order of a pass."""
    return (5 + 1) * LONG * plan.triples


def graph_indices(plan: Plan) -> int:
    """Return the most bytes that the known answers of training and of all splits take."""
    held_out = plan.every_triple - plan.triples
    train = 2 * LONG * (plan.all_keys + 1) + 2 * INT * plan.triples
    keys_of_triples = 2 * LONG * plan.triples
    if not held_out:
        return train + keys_of_triples
    # A triple that is held out makes at most one more key on each side.
    every = 2 * LONG * (plan.all_keys + 2 * held_out + 1) + 2 * INT * plan.every_triple
    return train + keys_of_triples + every


def indices_there(graph: KnowledgeGraph) -> int:
    """Return the bytes of those of them that were built already: each is, at its first use."""
    return graph.index_bytes()


def ranked_queries(plan: Plan) -> int:
    """Return the bytes of the triples that are ranked, and on a GPU of their known answers."""
    valid = len(plan.graph.valid) if plan.config.validate_every else 0
    splits = [count for count in (valid, len(plan.graph.test)) if count]
    answers = 0 if plan.device.type == "cpu" else 2 * INT * plan.every_triple
    # Relation, place in the order; of each side anchor, answer, begin and end of what is known.
    return sum((2 + 2 * 4) * LONG * count + answers for count in splits)


def run_folder(plan: Plan) -> dict[str, int]:
    """Return the bytes of the files of a run at the moment when it needs most of the disk."""
    names = [*plan.graph.entities, *plan.graph.relations]
    names += [text for pair in plan.graph.labels.items() for text in pair]
    labelled = sum(len(part.triples) for part in plan.graph.labelled.values())
    state = model_state(plan.model)
    kept = caches(plan) + (model_state(plan.generator) if plan.generator else 0)
    moments = optimizer_state(plan) + (
        _optimizer_state(plan.generator, plan, "adam") if plan.generator else 0
    )
    ready = _unit_rows(plan)
    if plan.generator is not None and plan.compiled_generator:
        ready += _unit_rows_of(plan.generator)
    checkpoint = 2 * state + moments + kept + ready + CHECKPOINT_REST
    return {
        "model": 2 * state,  # a better one is written beside the last
        "cache": kept,
        "snapshots": plan.snapshots * caches(plan),
        "data": 3 * INT * plan.every_triple + 4 * INT * labelled + _text_bytes(names),
        "checkpoints": CHECKPOINTS * checkpoint,
        "lines and pages": EPOCH_LINE * plan.config.epochs + PAGES,
    }


def _text_bytes(names: list[str]) -> int:
    """Return about the bytes of names in a JSON list; of a great many, from a sample."""
    some = names[:: max(1, len(names) // 10_000)]
    each = sum(len(name.encode(errors="replace")) for name in some) / max(1, len(some))
    return round(len(names) * (each + len('"",\n')))


def keys_by_side(plan: Plan) -> dict[str, int]:
    """Return the number of keys of each side."""
    return {side.value: plan.keys(side) for side in Side}
