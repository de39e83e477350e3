"""What several tests share: small graphs, small models and plain twins of the library's code."""

from __future__ import annotations

import contextlib
import functools
import gzip
import importlib.util
import itertools
import os
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nscaching import KnowledgeGraph, Listener, TrainConfig
from nscaching.data.index import Side
from nscaching.kernels import Kernels
from nscaching.kernels.batch import Batch, Negatives
from nscaching.models import MODELS, Model
from nscaching.samplers import SAMPLERS, Sampler

# Settings that make a run on a tiny graph take a few milliseconds.
TINY = {
    "model": "TransE", "dim": 4, "epochs": 2, "batch_size": 16, "lr": 0.05, "n1": 4, "n2": 3,
    "margin": 4.0, "penalty": 0.0, "validate_every": 1, "patience": 0, "device": "cpu",
    "threads": 1,
}  # fmt: skip

CPU = torch.device("cpu")

torch.set_num_threads(1)  # with so small tensors, threads only wait for each other


class Hearing(Listener):
    """A listener whose methods are the given functions."""

    def __init__(self, **functions):
        vars(self).update(functions)


def graph_of(train, valid=(), test=(), entities=None, relations=None, **rest):
    """Build a graph of id triples; names are e0, e1, … and r0, r1, …"""
    splits = {
        split: np.array(list(triples), dtype=np.int32).reshape(-1, 3)
        for split, triples in (("train", train), ("valid", valid), ("test", test))
    }
    every = np.concatenate(list(splits.values()))
    entities = entities or int(every[:, [0, 2]].max()) + 1
    relations = relations or int(every[:, 1].max()) + 1
    return KnowledgeGraph.from_arrays(
        [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)], splits, **rest
    )


def random_graph(seed=0, entities=12, relations=3, train=40, valid=8, test=8):
    """Build a graph of random triples, each in one split only."""
    random = np.random.default_rng(seed)
    n = entities * relations * entities
    chosen = random.choice(n, size=train + valid + test, replace=False)
    triples = np.stack(np.unravel_index(chosen, (entities, relations, entities)), axis=1)
    parts = np.split(triples, [train, train + valid])
    return graph_of(*parts, entities=entities, relations=relations)


@st.composite
def graphs(draw):
    """Make graphs of a few entities; a triple may stand in several splits, entity 0 often does."""
    entities, relations = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    entity, relation = st.integers(0, entities - 1), st.integers(0, relations - 1)
    triples = st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=12)
    return graph_of(
        draw(triples), draw(triples), draw(triples), entities=entities, relations=relations
    )


def all_triples(graph, splits=("train", "valid", "test")):
    """Return the triples of some splits as a set of tuples."""
    return {tuple(triple) for split in splits for triple in graph.split(split).tolist()}


def new_model(name, entities=9, relations=3, dim=4, norm=1, seed=0, dtype=torch.float32) -> Model:
    """Make a model with random parameters, larger than those of Xavier's start."""
    model = MODELS.get(name)(entities, relations, dim, norm)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in model.parameters():
            table.copy_(torch.randn(table.shape, generator=random))
        for fixed in model.buffers():  # weights, or masks
            drawn = torch.rand(fixed.shape, generator=random)
            fixed.copy_(drawn < 0.7 if fixed.dtype == torch.bool else 0.5 + drawn)
    return model.to(dtype)


def model_for(graph, name="DistMult", **options) -> Model:
    """Make a model of the sizes of a graph."""
    return new_model(name, len(graph.entities), len(graph.relations), **options)


def new_sampler(graph, seed=0, kernels=None, **settings) -> Sampler:
    """Make a sampler as a training run does."""
    config = TrainConfig.from_dict({**TINY, **settings})
    return SAMPLERS.get(config.sampler)(graph, config, CPU, seed, kernels)


def batch_of(graph, rows=None) -> Batch:
    """Return some training triples, or all of them, as a batch."""
    row = torch.arange(len(graph.train)) if rows is None else torch.as_tensor(rows)
    columns = [*graph.train.T, *(graph.train_keys[side] for side in (Side.HEAD, Side.TAIL))]
    return Batch(*(torch.tensor(column).long()[row] for column in columns))


def plain_batch(head, relation, tail) -> Batch:
    """Return triples as a batch whose keys nobody will ask for."""
    no_key = torch.full_like(head, -1)
    return Batch(head, relation, tail, no_key, no_key)


def chances(scores, count, temperature=1.0):
    """Enumerate the draws, one by one without replacement, by softmax(scores / temperature).

    Returns {columns in the order of the draws: probability}; −inf is never drawn.
    """
    weights = np.exp(np.asarray(scores, dtype=np.float64) / temperature)
    found = {}
    for order in itertools.permutations(np.flatnonzero(weights).tolist(), count):
        probability, left = 1.0, weights.sum()
        for column in order:
            probability *= weights[column] / left
            left -= weights[column]
        found[order] = probability
    return found


def goodness(seen, expected):
    """Return the p-value of Pearson's χ² test of observed outcomes against {outcome: chance}."""
    assert set(seen) <= set(expected), "an outcome that cannot be"
    assert sum(expected.values()) == pytest.approx(1)
    n = sum(seen.values())
    # The test wants five or more expected in each cell: the rare outcomes share one.
    common = [outcome for outcome, p in expected.items() if n * p >= 5]
    observed = [seen.get(outcome, 0) for outcome in common]
    wanted = [n * expected[outcome] for outcome in common]
    if n - sum(wanted) > 1e-6 * n:
        observed.append(n - sum(observed))
        wanted.append(n - sum(wanted))
    return stats.chisquare(observed, wanted).pvalue


# Exact chances of a refresh. With one anchor and equal relations, all keys are the same small
# experiment: five entities with these scores, of which the first two are cached.
FIXED = torch.tensor([1.0, 0.0, -1.0, 2.5, 0.5])
MANY = 8000


@functools.cache
def repeated_graph():
    """Build a graph in which every relation is the same experiment once more."""
    return graph_of([(0, r, 0) for r in range(MANY)], entities=5)


def fixed_model(graph):
    """Make the model that gives these scores."""
    model = new_model("DistMult", 5, len(graph.relations), dim=1)
    with torch.no_grad():
        model.entity.copy_(FIXED.unsqueeze(1))  # the anchor is entity 0, whose value is 1
        model.relation.fill_(1)
    return model


def kept(side, path="reference", **options):
    """Refresh many equal rows [0, 1] once and count what they hold."""
    graph = repeated_graph()
    made = new_sampler(graph, kernels=new_kernels(path), n1=2, n2=2, **options)
    made.cache.rows[side][:] = torch.tensor([0, 1])
    batch = batch_of(graph, range(100 if path in SLOW else len(graph.train)))
    made.update(batch, fixed_model(graph))
    return Counter(tuple(sorted(row)) for row in made.cache.rows[side][batch.key(side)].tolist())


def kept_chances(temperature, candidates="set", scores=FIXED):
    """Enumerate the two random candidates and the two draws without replacement."""
    expected = Counter()
    for fresh in itertools.product(range(5), repeat=2):
        pool = [0, 1, *fresh]
        if candidates == "set":
            pool = sorted(set(pool))
        for order, chance in chances([float(scores[e]) for e in pool], 2, temperature).items():
            expected[tuple(sorted(pool[column] for column in order))] += chance / 25
    return expected


# Fast twins of the reference path, and the room of each.
TWINS = ["numba", "triton"]
ROOMS = {"numba": "cpu", "triton": "gpu"}

# What runs in an interpreter, some hundred steps in a second, does little of the work.
SLOW = set() if torch.cuda.is_available() else {"triton"}

if "triton" in TWINS and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    np.seterr(all="ignore")  # the interpreter computes with numpy, which warns of infinities
    if importlib.util.find_spec("triton"):
        import interpreted

        interpreted.hasten()

# One model for every way through the kernels: those with compiled gradients, and of each form one
# that has none; those ways are what a test of the kernels is about.
WAYS = [
    "ComplEx", "DistMult", "HolE", "ManifoldE", "RotatE", "TransD", "TransE", "TransH", "TransM",
    "TransR",
]  # fmt: skip

twins = pytest.mark.parametrize("twin", TWINS)
paths = pytest.mark.parametrize("path", ["reference", *TWINS])
fast_twins = pytest.mark.parametrize("twin", sorted(set(TWINS) - SLOW))
fast_paths = pytest.mark.parametrize("path", ["reference", *sorted(set(TWINS) - SLOW)])


def new_kernels(name) -> Kernels:
    """Make the kernels of a path."""
    if name == "reference":
        return Kernels()
    if name == "triton" and torch.cuda.is_available():
        from on_gpu import RemoteKernels

        return RemoteKernels()
    module = importlib.import_module(f"nscaching.kernels.{ROOMS[name]}.kernels")
    return getattr(module, f"{name.capitalize()}Kernels")()


def learner_of(learner):
    """Return the learner on the GPU of one that brings its parameters back, or the learner."""
    return getattr(learner, "learner", learner)


def share(path, count):
    """Return how much of something a path has the time for."""
    return max(3, count // 40) if path in SLOW else count


def for_twins(examples, **arguments):
    """Run a test with every twin, all members of its lists and examples of its strategies."""
    lists = {name: value for name, value in arguments.items() if isinstance(value, list)}
    strategies = {name: value for name, value in arguments.items() if name not in lists}
    lists = {"twin": TWINS, **lists}
    every = [
        pytest.param(dict(zip(lists, values, strict=True)), id="-".join(map(str, values)))
        for values in itertools.product(*lists.values())
    ]

    def decorate(test):
        @pytest.mark.parametrize("fixed", every)
        def run(fixed):
            plenty = settings(
                derandomize=True, deadline=None, max_examples=share(fixed["twin"], examples)
            )
            just = {name: st.just(value) for name, value in fixed.items()}
            plenty(given(**just, **strategies)(test))()

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def written(folder, name, text):
    """Write text or bytes to a file, packed if the name says so."""
    data = text if isinstance(text, bytes) else text.encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
    return path


def epochs_of(run):
    """Return the records of a run that are of epochs, not of rankings."""
    return [record for record in run.history if "split" not in record]


def random_steps(model, sizes, seed=0, untouched=0):
    """Make a batch of each size with its negatives; the last entities are in none of them.

    Some triples repeat, some are loops, and some negatives are their positive.
    """
    random = np.random.default_rng(seed)
    steps, entities = [], max(1, model.entities - untouched)
    for size in sizes:
        head, tail, new = random.integers(entities, size=(3, size))
        relation = random.integers(model.relations, size=size)
        tail = np.where(random.random(size) < 0.15, head, tail)
        again = np.where(random.random(size) < 0.2, 0, np.arange(size))
        head, relation, tail = head[again], relation[again], tail[again]
        is_head, same = random.random(size) < 0.5, random.random(size) < 0.15
        false_head = np.where(is_head & ~same, new, head)
        false_tail = np.where(~is_head & ~same, new, tail)
        head, relation, tail, false_head, false_tail = (
            torch.from_numpy(ids) for ids in (head, relation, tail, false_head, false_tail)
        )
        negatives = Negatives(false_head.unsqueeze(1), false_tail.unsqueeze(1))
        steps.append((plain_batch(head, relation, tail), negatives))
    return steps


@contextlib.contextmanager
def threads(count):
    """Let torch have this many threads; kernels that are made here keep them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
