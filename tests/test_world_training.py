"""The point of the cache: on the embedded data set it beats Bernoulli sampling, all else equal."""

from __future__ import annotations

import statistics

import pytest

from nscaching import KnowledgeGraph, train

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
