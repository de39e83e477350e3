"""What a run's cache holds by name: tables, JSON and errors."""

from __future__ import annotations

import json

import pytest
import torch

from helpers import TINY, graph_of, random_graph
from nscaching import KnowledgeGraph, ProbeConfig, Run, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side

SMALL = random_graph(entities=15, train=60, valid=12, test=12)
NAMES = [f"e{i}" for i in range(15)]
LABELS = {"e1": "[b]One[/b]", "e2": "two\x1b[31m\nlines"}
GRAPH = graph_of(SMALL.train, SMALL.valid, SMALL.test, 15, 3, labels=LABELS)
HEAD, RELATION, TAIL = GRAPH.train[0].tolist()
QUERY = {"head": f"e{HEAD}", "relation": f"r{RELATION}"}
FLAGS = ["--head", f"e{HEAD}", "--relation", f"r{RELATION}"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return train(GRAPH, **TINY | {"epochs": 4, "n1": 6}, probes=PROBES, out=path)


PROBES = ProbeConfig(snapshots=(0, 2))


@pytest.fixture
def tell(capsys):
    def call(*words):
        main(["inspect", *map(str, words)])
        return capsys.readouterr().out

    return call


def cached(state, side, anchor, relation):
    """Return the entities of a key by way of a training triple that has it."""
    column = 0 if side is Side.TAIL else 2
    for row, triple in enumerate(GRAPH.train.tolist()):
        if (triple[column], triple[1]) == (anchor, relation):
            return state[f"{side.value}_cache"][GRAPH.train_keys[side][row]].tolist()
    raise AssertionError


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("epoch", [None, 0, 2, 4])
def test_the_cache_of_a_key(run, side, epoch):
    anchor = HEAD if side is Side.TAIL else TAIL
    given = {"head" if side is Side.TAIL else "tail": f"e{anchor}", "relation": f"r{RELATION}"}
    state = run.snapshots.get(4 if epoch is None else epoch, run.sampler_state)
    for found in (
        run.inspect(**given, epoch=epoch),
        Run.load(run.path).inspect(**given, epoch=epoch),
    ):
        assert found["recorded"] == [0, 2, 4]
        (shown,) = found["epochs"]
        assert shown["epoch"] == (4 if epoch is None else epoch)
        ids = cached(state, side, anchor, RELATION)
        assert {e["name"] for e in shown["entities"]} == {f"e{i}" for i in ids}
        assert (shown["slots"], shown["distinct"]) == (6, len(set(ids)))
        for entity in shown["entities"]:
            i = int(entity["name"][1:])
            triple = (anchor, RELATION, i) if side is Side.TAIL else (i, RELATION, anchor)
            with torch.no_grad():
                score = run.model.score(*torch.tensor(triple))
            assert entity["score"] == pytest.approx(float(score), abs=1e-5)
            splits = [
                s for s in ("train", "valid", "test") if list(triple) in GRAPH.split(s).tolist()
            ]
            assert entity["known"] == (splits[0] if splits else "")
            assert entity["label"] == LABELS.get(entity["name"], entity["name"])
        assert shown["known"] == sum(e["known"] != "" for e in shown["entities"])
        place = 2 if side is Side.TAIL else 0
        others = {t[place] for t in GRAPH.train.tolist() if t[1] == RELATION}
        assert shown["of_relation"] == len(others & set(ids))
        marked = {e["name"] for e in shown["entities"] if e["of_relation"]}
        assert marked == {GRAPH.entities[i] for i in others & set(ids)}
        scores = [e["score"] for e in shown["entities"]]
        assert scores == sorted(scores, reverse=True)


def test_known_triples_are_marked():
    graph = graph_of([(0, 0, 1), (0, 0, 2)], [(0, 0, 3)], entities=4)
    run = train(graph, **TINY)
    (shown,) = run.inspect(head="e0", relation="r0")["epochs"]
    marks = {e["name"]: e["known"] for e in shown["entities"]}
    assert marks == {"e0": "", "e1": "train", "e2": "train", "e3": "valid"}


def test_samples_and_tops_of_all_epochs(run):
    whole = {e: run.inspect(**QUERY, epoch=e)["epochs"][0]["entities"] for e in (0, 2, 4)}
    top = run.inspect(**QUERY, top=2)["epochs"]
    assert {shown["epoch"]: shown["entities"] for shown in top} == {
        epoch: entities[:2] for epoch, entities in whole.items()
    }
    one, same, other = (run.inspect(**QUERY, sample=3, seed=s)["epochs"] for s in (1, 1, 3))
    assert one == same != other
    for shown in one:
        assert len(shown["entities"]) == 3
        assert all(entity in whole[shown["epoch"]] for entity in shown["entities"])
    everything = run.inspect(**QUERY, sample=99)["epochs"]
    assert [shown["entities"] for shown in everything] == list(whole.values())


def test_what_people_see(run, tell):
    out = tell(run.path, *FLAGS)
    assert f"(e{HEAD}, r{RELATION}, ?) at epoch 4" in out
    assert "6 entities in 6 slots" in out
    assert "other recorded epochs: 0, 2" in out
    out = tell(run.path, *FLAGS, "--sample", 3)
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["epoch", "0", "2", "4"]
    assert f"cache of (e{HEAD}, r{RELATION}, ?)" in lines[0]
    assert lines[0].split()[:3] == ["epoch", "known", "tails"]
    assert f"tails: how many of them are tails of r{RELATION} in training" in out
    out = "".join(tell(run.path, *FLAGS, "--epoch", e) for e in (0, 2, 4))
    out += "".join(tell(run.path, "--tail", f"e{TAIL}", *FLAGS[2:], "--epoch", e) for e in (0, 2))
    assert "\x1b" not in out
    assert "[b]One[/b] (e1)" in out
    assert r"two\x1b[31m\nlines (e2)" in out


def test_long_names_are_shortened_for_people_alone(tmp_path, tell):
    names = [f"{'x' * 2000} {i}" for i in range(4)]
    splits = {"train": [(0, 0, 1), (1, 0, 2)], "valid": [(2, 0, 3)]}
    graph = KnowledgeGraph.from_arrays(names, ["r" * 2000], splits, labels={names[2]: "y" * 2000})
    path = train(graph, **TINY, probes=ProbeConfig(snapshots=(0,)), out=tmp_path / "run").path
    flags = ["--head", names[0], "--relation", "r" * 2000]
    for words in ((), ("--sample", 1)):
        out = tell(path, *flags, *words)
        assert max(map(len, out.splitlines())) < 300
        assert "xxx…xxx" in out
    entities = json.loads(tell(path, *flags, "--json"))["epochs"][0]["entities"]
    assert {entity["name"] for entity in entities} == set(names)


def test_what_programs_read(run, tell):
    found = json.loads(tell(run.path, *FLAGS, "--top", 2, "--json"))
    assert found == run.inspect(**QUERY, top=2)


def absent(side):
    """Return a query that no training triple has, of an entity that has others."""
    column = 0 if side is Side.TAIL else 2
    have = {(t[column], t[1]) for t in GRAPH.train.tolist()}
    some = {entity for entity, _ in have}
    return next((e, r) for e in sorted(some) for r in range(3) if (e, r) not in have)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"head": "e0"}, "give relation and one of head and tail"),
        ({"relation": "r0"}, "give relation and one of head and tail"),
        ({"head": "e0", "relation": "r0", "tail": "e1"}, "give relation and one of"),
        ({**QUERY, "sample": 2, "top": 2}, "give sample or top, not both"),
        ({**QUERY, "sample": 0}, "sample must be at least 1, not 0"),
        ({**QUERY, "top": -1}, "top must be at least 1, not -1"),
        ({**QUERY, "seed": -1, "sample": 1}, "seed must be at least 0, not -1"),
        ({**QUERY, "head": "x"}, "unknown entity 'x'; known: e0, "),
        ({**QUERY, "relation": "x"}, "unknown relation 'x'; known: r0, r1, r2"),
        ({**QUERY, "epoch": "2"}, "epoch takes a whole number, not '2'"),
        ({**QUERY, "sample": "2"}, "sample takes a whole number, not '2'"),
        ({**QUERY, "top": 2.0}, "top takes a whole number, not 2.0"),
        ({**QUERY, "epoch": 3}, "epoch 3 is not recorded; known: 0, 2, 4"),
    ],
)
def test_what_cannot_be_shown_is_one_line(run, asked, message):
    with pytest.raises(UserError) as error:
        run.inspect(**asked)
    assert str(error.value).startswith(message)


def test_a_key_without_cache(run):
    entity, relation = absent(Side.TAIL)
    with pytest.raises(
        UserError, match=r"has no cache: no training triple fits; relations of"
    ) as e:
        run.inspect(head=f"e{entity}", relation=f"r{relation}")
    mine = {f"r{r}" for h, r, _ in GRAPH.train.tolist() if h == entity}
    assert set(str(e.value).rpartition(": ")[2].split(", ")) == mine
    graph = graph_of([(0, 0, 1)], [(1, 0, 2)])
    small = train(graph, **TINY | {"n1": 2})
    with pytest.raises(UserError, match=r"^\(e2, r0, \?\) has no cache.*heads of r0 there: e0$"):
        small.inspect(head="e2", relation="r0")
    with pytest.raises(UserError, match=r"^\(\?, r0, e0\) has no cache.*tails of r0 there: e1$"):
        small.inspect(tail="e0", relation="r0")


def test_a_run_of_another_sampler():
    run = train(GRAPH, **TINY, sampler="bernoulli")
    with pytest.raises(
        UserError,
        match="its sampler is bernoulli, and only samplers that keep",
    ):
        run.inspect(**QUERY)


def test_a_run_that_is_not_finished(run, monkeypatch):
    monkeypatch.setattr(run, "sampler_state", {})
    monkeypatch.setattr(run, "snapshots", {})
    with pytest.raises(UserError, match=r"holds no cache: there is none in cache.safetensors"):
        run.inspect(**QUERY)


def test_a_cache_that_does_not_fit(run, monkeypatch):
    state = run.sampler_state
    for damaged in (state["tail_cache"][1:], state["tail_cache"] + 99, state["tail_cache"].float()):
        monkeypatch.setattr(run, "sampler_state", state | {"tail_cache": damaged})
        with pytest.raises(UserError, match="its cache of epoch 4 does not fit"):
            run.inspect(**QUERY)


def test_the_end_of_a_run_whose_history_is_lost(run, monkeypatch):
    monkeypatch.setattr(run, "history", [])
    monkeypatch.setattr(run, "best_epoch", 3)
    assert run.inspect(**QUERY)["recorded"] == [0, 2, 3]
