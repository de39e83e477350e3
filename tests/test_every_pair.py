"""Every scoring function with every sampler, from the command line, on embedded data."""

from __future__ import annotations

import json
import math

import pytest
import torch

from helpers import epochs_of
from nscaching import KnowledgeGraph, Run
from nscaching.cli import main as cli
from nscaching.models import MODELS, build
from nscaching.samplers import SAMPLERS

# Few numbers, large steps and a fifth of the triples: all pairs together take about half a minute.
SMALL = "--dim 8 --batch-size 2048 --n1 10 --n2 10 --lr 0.02 --threads 1 --seed 1"


@pytest.fixture(scope="module")
def fifth(tmp_path_factory):
    """Write a fifth of the embedded data set, all relations among it."""
    graph, folder = KnowledgeGraph.load("world"), tmp_path_factory.mktemp("data") / "fifth"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        rows = graph.split(split)[::5]
        names = (
            (graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in rows.tolist()
        )
        text = "".join("\t".join(triple) + "\n" for triple in names)
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("sampler", SAMPLERS.names())
@pytest.mark.parametrize("model", MODELS.names())
def test_a_pair_trains(model, sampler, fifth, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # The plot is of losses and figures: it knows neither model nor sampler.
    monkeypatch.setattr("nscaching.runs.run.plot_run", lambda run, path: path.touch())
    names = f"--model {model} --sampler {sampler} --epochs 2 --validate-every 2"
    cli.main(["train", str(fifth), *f"{names} {SMALL} --out run --json".split()])
    assert 0 < json.loads(capsys.readouterr().out)["test"]["mrr"] <= 1
    run = Run.load("run", "cpu")
    epochs = epochs_of(run)
    assert [record["epoch"] for record in epochs] == [1, 2]
    assert epochs[1]["loss"] < epochs[0]["loss"]
    rankings = [(r["split"], r["epoch"]) for r in run.history if "split" in r]
    assert rankings == [("valid", 2), ("test", 2)]
    figures = {"epoch", "loss", "nonzero_loss", "gradient_norm", "seconds"}
    if sampler in ("kbgan", "igan"):
        figures |= {"generator_loss", "reward", "entropy"}
    for record in epochs:
        assert record.keys() == figures
        assert all(math.isfinite(value) for value in record.values())
    start = build(model, run.graph, run.config.dim, run.config.norm)
    start.reset(torch.Generator().manual_seed(1000 * run.config.seed))
    for name, table in run.model.named_parameters():
        assert table.isfinite().all()
        assert not torch.equal(table, start.state_dict()[name])
