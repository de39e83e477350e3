"""Run folders with the records that figures are drawn from, made up and without a training."""

from __future__ import annotations

import json

import numpy as np

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.runs.folder import RunFolder

PACE = {"nscaching": 15.0, "bernoulli": 60.0, "kbgan": 40.0}  # epochs until a run has learnt


def some_graph(name="toy", entities=400, names=None, labels=None):
    """Make a graph of one relation in which each entity points to the next two."""
    heads = np.repeat(np.arange(entities), 2)
    tails = (heads + np.tile([1, 2], entities)) % entities
    triples = np.column_stack([heads, np.zeros_like(heads), tails]).astype(np.int32)
    parts = {"train": triples[:-20], "valid": triples[-20:-10], "test": triples[-10:]}
    names = names or [f"e{i}" for i in range(entities)]
    return KnowledgeGraph.from_arrays(
        splits=parts, entities=names, relations=["next_to"], labels=labels or {}, name=name
    )


def some_run(path, graph=None, traced=True, validated=True, probed=True, step=5, **settings):
    """Write a run folder whose curves look like those of a training; return its path."""
    settings = {"model": "TransD", "epochs": 100, "margin": 4.0, **settings}
    config = TrainConfig.from_dict(settings)
    folder, random = RunFolder(path), np.random.default_rng(config.seed)
    folder.create(graph or some_graph(), config)
    pace, cached = PACE.get(config.sampler, 30.0), config.sampler == "nscaching"
    best = 0.8 if cached else 0.6
    cache = config.cache
    best -= 0.2 * (cache.draw == "top") + 0.1 * (cache.refresh == "top") + 1 / cache.n1
    for epoch in range(1, config.epochs + 1):
        noise, left = random.normal(0, 0.01), np.exp(-epoch / pace)
        record = {"epoch": epoch, "loss": 0.1 + left, "seconds": 0.02 * (1 + cached)}
        record["nonzero_loss"] = (0.6 if cached else 0.05) + 0.4 * left + noise
        record["gradient_norm"] = (0.3 if cached else 0.05) + left + abs(noise)
        if probed and epoch % 20 == 0:
            record["repeat_ratio"] = (0.3 if cached else 0.01) + 0.1 * (cache.draw == "top")
        if probed and cached:
            record["changed_elements"] = (5 if cache.refresh == "top" else 20) * (1 + left)
        folder.append(record)
        if validated and epoch % step == 0:
            mrr = best * (1 - left) + noise / 4
            start = {"epoch": epoch, "trained_seconds": epoch * record["seconds"], "seconds": 0.1}
            start |= {"mr": 100.0, "hits@1": mrr / 2, "hits@3": mrr, "mrr": mrr}
            folder.append({**start, "split": "valid", "hits@10": min(1.0, mrr * 1.2)})
            if traced:
                hits = min(1.0, mrr * 1.19)
                folder.append(
                    {**start, "split": "test", "traced": True, "mrr": mrr - 0.01, "hits@10": hits}
                )
    if validated:
        folder.append({**start, "split": "test", "hits@10": 0.99, "mrr": 0.99})  # the final one
    return folder.path


def watch(path, triples, epochs, margin=4.0, negatives=398, side="tail"):
    """Add scores of watched triples to a run folder: ever fewer negatives come near."""
    random = np.random.default_rng(0)
    with (path / "scores.jsonl").open("a", encoding="utf-8") as file:
        for epoch in epochs:
            for i, (head, relation, tail) in enumerate(triples):
                far = 8 * epoch / max(epochs)
                scores = np.sort(random.gumbel(-far - i / 2, 1 + far / 10, negatives))
                record = {"epoch": epoch, "head": head, "relation": relation, "tail": tail}
                record |= {"side": side, "margin": margin}
                record["differences"] = np.quantile(scores, np.linspace(0, 1, 201)).tolist()
                record["top"] = scores[::-1][:100].tolist()
                file.write(json.dumps(record) + "\n")
