"""What is not said is chosen for the graph: what is said stays, and a choice can be repeated."""

from __future__ import annotations

import itertools
import shlex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import graph_of, graphs, random_graph
from nscaching import Run, TrainConfig, UserError, train
from nscaching.cli import main as cli
from nscaching.config import BY_GRAPH, HINTS
from nscaching.models import MODELS
from nscaching.runs.card import command
from nscaching.samplers import SAMPLERS
from nscaching.training import defaults
from nscaching.training.defaults import answers, describe, recipe, redundancy, settings_for
from nscaching.tuning import tune

GRAPH = random_graph(entities=30, relations=4, train=200, valid=20, test=20)
SHORT = {"epochs": 1, "threads": 1, "device": "cpu", "validate_every": 1}

some_settings = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(MODELS.names()),
        "sampler": st.sampled_from(SAMPLERS.names()),
        "dim": st.integers(1, 9),
        "n1": st.integers(1, 9),
        "tail": st.integers(1, 9),
        "lr": st.sampled_from([0.5, 0.25]),
        "margin": st.sampled_from([0.5, 3.0]),
        "epochs": st.integers(1, 9),
        "patience": st.integers(0, 2),
        "penalty": st.sampled_from([0.5]),
        "optimizer": st.sampled_from(["adam", "adagrad", "row-adam"]),
    },
)


@settings(max_examples=60, deadline=None)
@given(graphs(), some_settings)
def test_what_is_given_stays_and_a_choice_is_final(graph, asked):
    """The settings that were chosen, given as they are, leave nothing to choose."""
    chosen = settings_for(graph, **asked)
    flat = chosen.flat()
    assert {name: flat[name] for name in asked} == asked
    assert {n for n, v in flat.items() if v != recipe(asked).flat()[n]} <= set(BY_GRAPH)
    assert {n for n, v in recipe(asked).flat().items() if v != TrainConfig().flat()[n]} <= {
        *BY_GRAPH, *asked,
    }  # fmt: skip
    assert settings_for(graph, **chosen.to_dict()) == chosen
    assert describe(chosen).startswith(f"{chosen.model}, ")


@pytest.mark.parametrize("entities", [2, 3, 14])
@pytest.mark.parametrize("model", ["ComplEx", "TransE", "TransH", "RESCAL"])
def test_the_smallest_graphs_train(entities, model):
    pairs = itertools.product(range(entities), repeat=2)
    triples = [(head, 0, tail) for head, tail in pairs]
    graph = graph_of(triples, triples[:1], triples[:1], entities=entities)
    run = train(graph, model=model, **SHORT)
    assert run.result("valid")["mrr"] > 0


@pytest.mark.parametrize("model", MODELS.names())
def test_every_model_learns_by_default(model):
    triples = GRAPH.train.tolist()
    graph = graph_of(triples, triples, entities=30)  # what is ranked is what is learned
    run = train(graph, model=model, **SHORT | {"epochs": 20, "seed": 1})
    first, *_, last = (record["mrr"] for record in run.history if record.get("split") == "valid")
    assert last > first + 0.02


def test_models_and_samplers_decide_about_the_loss():
    assert recipe({}).model == "ComplEx"
    for model in ("ComplEx", "TransE", "RotatE", "HolE"):
        assert recipe({"model": model}).objective == "softmax"
        for asked in ({"sampler": "bernoulli"}, {"margin": 3.0}, {"negatives": 2}, {"n2": 5}):
            assert recipe({"model": model, **asked}).objective == "auto"
        assert recipe({"model": model, "objective": "softmax", "n2": 5}).objective == "softmax"
    assert recipe({"model": "TransH"}).objective == "auto"  # its softmax has no compiled steps
    with pytest.raises(UserError, match="unknown model 'ComplE'; known: ANALOGY, "):
        recipe({"model": "ComplE"})


def test_sizes_fit_the_graph(monkeypatch):
    """A small graph has a softmax over all entities; a table and the caches have a limit."""
    assert (settings_for(GRAPH).cache.n1, settings_for(GRAPH).tail) == (0, 30)
    large = random_graph(entities=1000, relations=2, train=3000)
    assert (settings_for(large).cache.n1, settings_for(large).tail) == (64, 512)
    assert settings_for(large, tail=2000).cache.n1 == 64
    assert settings_for(large, model="TransH").cache.n1 == 50
    assert settings_for(GRAPH, model="TransH").cache.n1 == 15
    assert settings_for(large).dim == 200
    assert settings_for(large, model="RESCAL").dim == 50
    keys = sum(map(len, large.train_index.values()))
    monkeypatch.setattr(defaults, "TABLE_BYTES", 1000 * 2 * 4 * 110)
    monkeypatch.setattr(defaults, "CACHE_BYTES", keys * 4 * 40)
    assert (settings_for(large).dim, settings_for(large).cache.n1) == (100, 32)


def test_a_training_has_enough_steps_and_an_end():
    tiny, small = random_graph(train=40), random_graph(entities=300, relations=9, train=20_000)
    for graph, batch, epochs in ((tiny, 64, 200), (small, 256, 200)):
        config = settings_for(graph)
        assert (config.batch_size, config.epochs, config.patience) == (batch, epochs, 5)
        assert config.validate_every == 6
    assert settings_for(tiny, validate_every=0).patience == 0
    assert settings_for(tiny, batch_size=7).batch_size == 7


@settings(max_examples=50, deadline=None)
@given(graphs())
def test_measures_of_a_graph(graph):
    triples = [tuple(triple) for triple in graph.train.tolist()]
    ends = [frozenset((h, t)) for h, _, t in triples]
    assert redundancy(graph) == pytest.approx(np.mean([ends.count(pair) > 1 for pair in ends]))
    relations = {r: {(h, t) for h, q, t in triples if q == r} for _, r, _ in triples}
    tph = {r: len(pairs) / len({h for h, _ in pairs}) for r, pairs in relations.items()}
    hpt = {r: len(pairs) / len({t for _, t in pairs}) for r, pairs in relations.items()}
    assert answers(graph) == pytest.approx(np.mean([tph[r] + hpt[r] for _, r, _ in triples]))


def test_facts_that_follow_from_others_are_penalised_less():
    random = np.random.default_rng(0)
    one = np.unique(random.integers(0, 40, (200, 2)), axis=0)
    one = one[one[:, 0] < one[:, 1]]
    triples = [(h, 0, t) for h, t in one.tolist()]
    twice = [*triples, *((t, 1, h) for h, t in one.tolist())]
    assert settings_for(graph_of(triples)).penalty == 0.1
    assert settings_for(graph_of(twice)).penalty == 0.02
    # A file that names the kind of the penalty, as those of runs do, says all of it.
    assert settings_for(graph_of(twice), penalty_norm="l2").penalty is None


# As people meet it.


def test_a_run_tells_what_was_chosen_and_can_be_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"e{h}\tr{r}\te{t}" for h, r, t in GRAPH.train.tolist()]
    (tmp_path / "own.tsv").write_text("\n".join(rows) + "\n")
    cli.main(["train", "own.tsv", "--epochs", "3", "--threads", "1", "--out", "first"])
    out, err = capsys.readouterr()
    first = Run.load("first")
    line = f"chosen for this graph: {describe(first.config)}\n"
    assert line in err
    assert "ComplEx, softmax over 30 entities, 200 dimensions, batch 64, adagrad 0.1" in line
    again = shlex.split(command(first))
    assert again[:3] == ["nscaching", "train", str(tmp_path / "own.tsv")]
    for words in (again[1:], ["train", "--config", "first/config.toml"]):
        cli.main([*words, "--out", "again", "--overwrite"])
        assert "chosen for this graph" not in capsys.readouterr().err
        repeated = Run.load("again")
        assert repeated.config == first.config
        assert repeated.result("test")["mrr"] == first.result("test")["mrr"]
    cli.main(["train", "own.tsv", "--plain", "--epochs", "1", "--dim", "4", "--n1", "4"])
    assert "chosen for this graph" not in capsys.readouterr().err
    plain = Run.load("runs/own-transe-nscaching-seed0").config
    assert plain == TrainConfig().changed(epochs=1, dim=4, n1=4)
    words = ["own.tsv", "--objective", "softmax", "--n2", "3", "--tail", "5", "--epochs", "1"]
    cli.main(["train", *words])
    err = capsys.readouterr().err
    assert "note: --n2 has no effect with --objective softmax\n" in err
    assert "--tail has no effect" not in err
    # A file may leave most to the graph, and flags win over a file.
    (tmp_path / "own.toml").write_text('model = "DistMult"\nepochs = 2\nthreads = 1\n')
    cli.main(["train", "own.tsv", "--config", "own.toml", "--epochs", "1", "--out", "second"])
    assert "chosen for this graph: DistMult, softmax over 30 entities" in capsys.readouterr().err
    assert Run.load("second").config.epochs == 1
    assert out


def test_the_command_line_says_which_settings_the_graph_decides(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert shown.count("(default: by the graph)") == len(BY_GRAPH)
    assert set(BY_GRAPH) <= set(HINTS)


def test_a_search_starts_from_what_the_graph_decides():
    found = tune(GRAPH, {"lr": [0.1, 0.05]}, trials=2, **SHORT)
    assert found.config.changed(lr=0.1) == settings_for(GRAPH, **SHORT)
    assert tune(GRAPH, {"margin": [2.0]}, 1, model="TransE", **SHORT).config.objective == "auto"


def test_what_is_given_decides_about_the_rest():
    large = random_graph(entities=300, relations=9, train=51_000)
    for graph, scale, length in ((GRAPH, 7.2, 11.28), (large, 15.0, 11.28)):
        by_norm = [settings_for(graph, model="TransE", norm=norm).scale for norm in (2, 1)]
        assert by_norm == pytest.approx([scale, scale / length], abs=0.01)
    assert settings_for(GRAPH, model="TransE", optimizer="adagrad").lr == 0.1
    assert settings_for(GRAPH, sampler="uniform", optimizer="adagrad").lr == 0.1
    assert settings_for(GRAPH, epochs=60).validate_every == 2
    assert settings_for(large, batch_size=64).epochs == 20
    assert settings_for(GRAPH, n1=0).tail == 30
    assert settings_for(GRAPH, penalty_norm="n3").penalty == settings_for(GRAPH).penalty
    assert settings_for(random_graph(valid=0)).patience == 0
    assert settings_for(GRAPH, lazy=1, temperature=2.0).objective == "softmax"


def test_a_run_to_start_from_decides_about_the_shape(tmp_path):
    config = TrainConfig().changed(n1=4, dim=6, **SHORT)
    train(GRAPH, config, out=tmp_path / "start")
    chosen = settings_for(GRAPH, pretrain=str(tmp_path / "start"))
    assert (chosen.model, chosen.dim, chosen.norm, chosen.reciprocal) == ("TransE", 6, 1, False)
    train(GRAPH, pretrain=str(tmp_path / "start"), **SHORT)
    assert settings_for(GRAPH, pretrain=str(tmp_path / "none")).model == "ComplEx"
