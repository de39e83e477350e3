"""What several tests share: small graphs, small models and plain twins of the library's code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy import stats

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.batches import Batch
from nscaching.models import MODELS, Model
from nscaching.samplers import SAMPLERS, Sampler

# Settings that make a run on a tiny graph take a few milliseconds.
TINY = {
    "dim": 4, "epochs": 2, "batch_size": 16, "lr": 0.05, "n1": 4, "n2": 3,
    "margin": 4.0, "penalty": 0.0, "validate_every": 1, "device": "cpu", "threads": 1,
}  # fmt: skip

CPU = torch.device("cpu")

torch.set_num_threads(1)  # with so small tensors, threads only wait for each other


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
    return model.to(dtype)


def new_sampler(graph, seed=0, **settings) -> Sampler:
    """Make a sampler as a training run does."""
    config = TrainConfig.from_dict({**TINY, **settings})
    return SAMPLERS.get(config.sampler)(graph, config, CPU, seed)


def batch_of(graph, rows=None) -> Batch:
    """Return some training triples, or all of them, as a batch."""
    row = torch.arange(len(graph.train)) if rows is None else torch.as_tensor(rows)
    head, relation, tail = torch.from_numpy(graph.train).long()[row].unbind(1)
    return Batch(head, relation, tail, row)


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
