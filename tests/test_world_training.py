"""The embedded data set: the cache beats Bernoulli sampling on it, and every model learns it."""

from __future__ import annotations

import statistics

import pytest

from nscaching import KnowledgeGraph, train
from nscaching.models import MODELS

SETTINGS = {
    "dim": 16, "epochs": 15, "batch_size": 512, "lr": 0.02, "n1": 10, "n2": 20,
    "norm": 1, "margin": 4.0, "penalty": 0.0, "validate_every": 0, "device": "cpu", "threads": 1,
}  # fmt: skip


@pytest.mark.parametrize("model", ["TransE", "ComplEx"])
def test_the_cache_beats_bernoulli(model):
    graph = KnowledgeGraph.load("world")
    mrr = {
        sampler: statistics.mean(
            train(graph, model=model, sampler=sampler, seed=seed, **SETTINGS).result("test")["mrr"]
            for seed in (1, 2, 3)
        )
        for sampler in ("nscaching", "bernoulli")
    }
    assert mrr["nscaching"] > 1.1 * mrr["bernoulli"]
    assert mrr["bernoulli"] > 0.05  # by chance it would be 0.002


# Two thirds, about, of the MRR of the test triples after so few epochs; by chance it is 0.002.
LEARNED = {
    "TransE": 0.17, "TransM": 0.085, "TransH": 0.08, "TransD": 0.08, "TransR": 0.045,
    "TranSparse": 0.045, "RotatE": 0.05, "ManifoldE": 0.09, "ManifoldE-hyperplane": 0.065,
    "RESCAL": 0.16, "DistMult": 0.15, "HolE": 0.19, "ComplEx": 0.26, "ANALOGY": 0.17, "SimplE": 0.2,
}  # fmt: skip
EPOCHS = {"TransR": 1, "TranSparse": 1, "RESCAL": 5, "SimplE": 5}  # the last two begin slowly


@pytest.mark.parametrize("model", MODELS.names())
def test_every_model_learns_with_the_defaults(model):
    graph, epochs = KnowledgeGraph.load("world"), EPOCHS.get(model, 2)
    run = train(
        graph, model=model, epochs=epochs, seed=1, validate_every=0, device="cpu", threads=1
    )
    assert run.result("test")["mrr"] > LEARNED[model]
