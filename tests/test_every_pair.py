"""Every scoring function with every sampler, from the command line, on the embedded data set."""

from __future__ import annotations

import json

import pytest

from nscaching import KnowledgeGraph
from nscaching.cli import main as cli
from nscaching.models import MODELS
from nscaching.samplers import SAMPLERS

# Few numbers and large steps, so that all pairs together take about half a minute on two cores.
SMALL = "--dim 8 --batch-size 2048 --n1 10 --n2 10 --lr 0.02 --threads 1 --seed 1"
# Against every entity, or with 64 negatives of each triple: on a fifth of the triples.
MUCH_SCORED = ("igan", "none", "self-adversarial")


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
    data = fifth if sampler in MUCH_SCORED else "world"
    names = f"--model {model} --sampler {sampler} --epochs 2 --validate-every 2"
    cli.main(["train", str(data), *f"{names} {SMALL} --out run --json".split()])
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["test"]["mrr"] <= 1
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [r["loss"] for r in map(json.loads, lines) if "split" not in r]
    assert len(losses) == 2
    assert losses[1] < losses[0]
