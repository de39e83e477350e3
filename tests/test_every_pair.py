"""Every scoring function with every sampler, from the command line, on the embedded data set."""

from __future__ import annotations

import json

import pytest

from nscaching import cli
from nscaching.models import MODELS
from nscaching.samplers import SAMPLERS

# Few numbers and large steps, so that all pairs together take about a minute on two cores.
SMALL = "--dim 8 --batch-size 2048 --n1 10 --n2 10 --lr 0.02 --threads 1 --seed 1"
ONE_EPOCH = ("igan", "none")  # every entity is scored: that they learn is tested on small graphs


@pytest.mark.parametrize("sampler", SAMPLERS.names())
@pytest.mark.parametrize("model", MODELS.names())
def test_a_pair_trains(model, sampler, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    epochs = 1 if sampler in ONE_EPOCH else 2
    names = f"--model {model} --sampler {sampler} --epochs {epochs}"
    cli.main(f"train world {names} {SMALL} --validate-every 1 --out run --json".split())
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["test"]["mrr"] <= 1
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [r["loss"] for r in map(json.loads, lines) if "split" not in r]
    assert len(losses) == epochs
    assert losses == sorted(losses, reverse=True)
