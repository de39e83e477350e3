"""New facts and entities without a new training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import TINY, model_for, new_model, random_graph
from nscaching import KnowledgeGraph, Run, TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.readers.table import read_numbered
from nscaching.evaluation import new_vectors
from nscaching.evaluation.fact_losses import entity_tables
from nscaching.evaluation.ranking import Queries, rank
from nscaching.evaluation.ranks import metrics
from nscaching.models import MODELS
from nscaching.runs.extend import NewFacts, hold_out

NEW = [("new", "r0", "e1"), ("e2", "r1", "new"), ("newer", "r2", "new"), ("new", "r2", "e5")]


def run_of(name="ComplEx", **settings):
    graph = random_graph()
    model = model_for(graph, name, seed=1)
    return Run(graph, TrainConfig.from_dict({**TINY, "model": name, **settings}), model)


@pytest.fixture(scope="module")
def countries():
    """Train on cities of countries that speak their country's language, without some cities."""
    facts, new = [], []
    for c in range(4):
        for k in range(7):
            own = facts if k < 6 else new
            city = f"city{c}.{k}"
            own += [(city, "in", f"country{c}"), (city, "speaks", f"language{c}")]
            own += [(f"mayor{c}", "knows", city), (city, "near", f"city{c}.{(k + 1) % 6}")]
    settings = {"model": "ComplEx", "sampler": "none", "dim": 16, "epochs": 60, "lr": 0.05}
    config = TrainConfig(**settings, batch_size=64, validate_every=0, device="cpu", threads=1)
    return train(KnowledgeGraph.from_triples(facts, split_seed=None), config), new


def test_new_entities_are_found_by_what_was_held_out(countries):
    run, new = countries
    told = [fact for fact in new if fact[1] != "speaks"]
    extended = run.extend(told)
    for c in range(4):
        answer = extended.predict(f"city{c}.6", "speaks", top=1)[0]["tail"]
        assert answer == f"language{c}"
    report = run.extend(new).record["extended"]
    assert report["held_out"] == 4
    assert (report["facts"], report["new_entities"], report["between_known"]) == (16, 4, 0)
    untrained = Run(run.graph, run.config, new_model("ComplEx", len(run.graph.entities), 4, 16))
    assert report["mrr"] > 0.6 > untrained.extend(new).record["extended"]["mrr"]


def test_new_entities_do_not_displace_the_answers_to_other_queries(countries):
    run, new = countries

    def unfiltered_mrr(some):
        found = rank(
            some.model, Queries(run.graph, some.graph.ids(run.graph.triples("train")), False)
        )
        return np.mean([1 / ranks.resolve("realistic") for ranks in found.values()])

    before = unfiltered_mrr(run)
    for seed in range(3):
        assert unfiltered_mrr(run.extend(new, seed=seed)) > 0.97 * before


@pytest.fixture
def few_steps(monkeypatch):
    """Fit in a few steps: what is tested holds after each."""
    monkeypatch.setattr(new_vectors, "STEPS", 25)


@pytest.mark.parametrize("name", MODELS.names())
def test_nothing_else_moves(name, few_steps):
    run = run_of(name)
    before = {key: value.clone() for key, value in run.model.state_dict().items()}
    extended = run.extend(NEW)
    assert extended.graph.entities == [*run.graph.entities, "new", "newer"]
    by_entity = entity_tables(run.model)
    for key, value in extended.model.state_dict().items():
        old = value[:12] if key in by_entity else value
        assert torch.equal(old, before[key])
        if key in by_entity:
            assert len(value) == 14
            assert value.isfinite().all()
            assert not torch.equal(value[12], value[13])
    assert all(torch.equal(run.model.state_dict()[key], before[key]) for key in before)
    assert extended.predict("new", "r0", known="mark")[0]["rank"] == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "softmax", "reciprocal": True}, {"objective": "margin"},
        {"sampler": "self-adversarial"}, {"sampler": "none", "objective": "kvsall"},
        {"objective": "softmax", "penalty_norm": "n3", "penalty": 0.1}, {"penalty": 0.1},
    ],
)  # fmt: skip
def test_every_loss_fits(settings, few_steps):
    graph = random_graph()
    run = train(graph, TrainConfig.from_dict({**TINY, "model": "ComplEx", **settings}))
    extended = run.extend(NEW, held_out=0)
    assert "held_out" not in extended.record["extended"]
    known = {tuple(fact) for fact in extended.graph.ids(NEW).tolist()}
    assert known <= {tuple(fact) for fact in extended.graph.train.tolist()}


def test_facts_between_known_entities_change_no_vector():
    run = run_of()
    known = {
        tuple(fact) for s in ("train", "valid", "test") for fact in run.graph.split(s).tolist()
    }
    fact = next((f"e{h}", "r0", f"e{t}") for h in range(12) for t in range(12)
                if (h, 0, t) not in known)  # fmt: skip
    extended = run.extend([fact, fact])
    assert torch.equal(extended.model.entity, run.model.entity)
    assert extended.record["extended"]["between_known"] == 1
    assert len(extended.graph.train) == len(run.graph.train) + 1
    assert extended.predict(*fact).queries[0]["known"] == "train"


def test_the_same_seed_gives_the_same_vectors(few_steps):
    first, again, other = (run_of().extend(NEW, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.model.entity, again.model.entity)
    assert not torch.equal(first.model.entity, other.model.entity)


def test_what_is_held_out():
    random = np.random.default_rng(0)
    rows = [(random.integers(40), 0, random.integers(40)) for _ in range(200)]
    triples = np.unique(np.array(rows, dtype=np.int32), axis=0)
    facts = NewFacts(triples, [f"n{i}" for i in range(20)], [""] * len(triples), known=20)
    kept = hold_out(facts, 0.2, seed=3)
    ends = triples[:, [0, 2]]
    assert ((ends[~kept] >= 20).sum(1) == 1).all()
    for entity in range(20, 40):
        links = ((ends == entity).any(1)) & ((ends < 20).any(1))
        left = links & kept
        assert left.any() or not links.any()
        assert (links & ~kept).sum() == max(0, min(np.ceil(0.2 * links.sum()), links.sum() - 1))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ([("new", "r0", "e1"), ("a", "r0", "b")], r"row 1 .*'a' is a new entity, and no new fact"),
        ([("new", "r0", "new")], r"row 0 .*'new' is a new entity"),
        ([("new", "r9", "e1")], r"row 0 .*unknown relation 'r9'; known: r0, r1, r2"),
        ([("new", "r0")], "row 0 .*expected"),
        ([], "there are none"),
    ],
)
def test_bad_facts_are_named(facts, message):
    with pytest.raises(UserError, match=message):
        run_of().extend(facts)


def test_known_facts_are_named():
    run = run_of()
    for split in ("train", "valid", "test"):
        fact = run.graph.triples(split)[0]
        with pytest.raises(UserError, match=rf"row 1 .*is known already, from {split}"):
            run.extend([("new", "r0", "e1"), fact])
    with pytest.raises(UserError, match="held_out must be at least 0"):
        run.extend(NEW, held_out=1)


def test_the_verb_writes_a_new_folder(tmp_path, ask, few_steps, capsys):
    graph = random_graph()
    run = train(graph, TrainConfig.from_dict(TINY))
    path = run.save(tmp_path / "run")
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    table = tmp_path / "new.csv"
    table.write_text("head,relation,tail\n" + "".join(f"{h},{r},{t}\n" for h, r, t in NEW))
    out = tmp_path / "more"
    words = ["extend", str(path), str(table), "--out", str(out)]
    found = ask(*words)
    assert (found["facts"], found["new_entities"], found["from"]) == (4, 2, "run")
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    loaded = Run.load(out)
    assert loaded.graph.entities[-2:] == ["new", "newer"]
    assert loaded.record["extended"]["facts"] == 4
    assert loaded.record["data_fingerprint"] == loaded.graph.fingerprint
    assert loaded.explain("new", "r0", "e1")["known"] == "train"
    assert "4 facts and 2 entities were added to run run" in (out / "README.md").read_text()
    main(["predict", str(out), "--head", "newer", "--relation", "r2"])
    main(["extend", str(out), str(_file(tmp_path, "third\tr0\tnew\n")), "--out", f"{out}2"])
    assert "no figures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("new\tr0\te1\n\nnew\tr9\te1\n", "new.tsv:3: unknown relation 'r9'"),
        ("new\tr0\te1\nnew\tr0\n", "new.tsv:2: expected 3 columns"),
        ("new\tr0\te1\na\tr0\tb\n", "new.tsv:2: 'a' is a new entity"),
        ("", "new.tsv: the file is empty"),
        ("head\trelation\ttail\n", "new.tsv: the file holds no triples"),
    ],
)
def test_the_verb_names_file_and_line(text, message, tmp_path, capsys):
    path = train(random_graph(), TrainConfig.from_dict(TINY)).save(tmp_path / "run")
    out = tmp_path / "more"
    error = _failing(["extend", path, _file(tmp_path, text), "--out", out], capsys)
    assert message in error
    assert not out.exists()


def test_the_verb_never_overwrites(tmp_path, capsys):
    path = train(random_graph(), TrainConfig.from_dict(TINY)).save(tmp_path / "run")
    file = _file(tmp_path, "new\tr0\te1\n")
    assert "name it by --out" in _failing(["extend", path, file], capsys)
    assert "exists already" in _failing(["extend", path, file, "--out", path], capsys)
    doc = tmp_path / "new.doc"
    assert "not '.doc'" in _failing(["extend", path, doc, "--out", tmp_path / "x"], capsys)


def test_new_facts_may_be_rdf(tmp_path, few_steps):
    pytest.importorskip("pyoxigraph")
    old = "".join(f":e{i} :near :e{i + 1}, :e{i + 2}, _:node .\n" for i in range(9))
    (tmp_path / "old.ttl").write_text("@prefix : <http://x.org/> .\n" + old)
    graph = KnowledgeGraph.load(tmp_path / "old.ttl")
    run = train(graph, TrainConfig.from_dict(TINY | {"model": "ComplEx"}))
    new = """@prefix : <http://x.org/> . @prefix y: <http://y.org/> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    y:new :near :e1, :e2, _:node ; rdfs:label "New One"@en .
    """
    (tmp_path / "new.ttl").write_text(new)
    more = run.extend(tmp_path / "new.ttl")
    assert more.record["extended"]["new_entities"] == 2  # a blank node is none of another file
    asked = more.predict("New One", "near", known="mark", top=len(more.graph.entities))
    known = {row["tail"] for row in asked if row["known"]}
    assert known == {"http://x.org/e1", "http://x.org/e2", "_:node+"}
    assert more.graph.short("http://y.org/new") == "y:new"
    for text, message in (
        (new + "y:new :nearest :e1 .", r"new.ttl, triple 4: unknown relation"),
        (new + ":e1 :near :e2 .", r"new.ttl, triple 4: .* is known already"),
        (new + "y:new :near ;;", r"new.ttl:4: "),
    ):
        (tmp_path / "new.ttl").write_text(text)
        with pytest.raises(UserError, match=message):
            run.extend(tmp_path / "new.ttl")


@pytest.mark.parametrize("name", ["ComplEx", "TransE", "TransD", "ManifoldE"])
@pytest.mark.parametrize("settings", [{}, {"penalty": 0.1}])
def test_gradients_of_the_new_rows_alone_are_those_of_whole_tables(
    name, settings, few_steps, monkeypatch
):
    run = run_of(name, **settings)
    quick = run.extend(NEW)
    monkeypatch.setattr(new_vectors.NewRows, "missed", property(lambda rows: True, setter), False)
    whole = run.extend(NEW)
    for table in entity_tables(run.model):
        mine, theirs = (r.model.get_parameter(table) for r in (quick, whole))
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        assert not torch.equal(mine[-1], mine[0])


def setter(rows, value):
    """Ignore what is set."""


def test_a_model_that_reads_its_table_in_another_way_is_extended_too(few_steps):
    class ByIndex(MODELS.get("DistMult")):
        def rows_of(self, table, ids):
            return getattr(self, table)[ids]

    run, plain = run_of("DistMult"), run_of("DistMult")
    run.model.__class__ = ByIndex
    mine, theirs = (r.extend(NEW).model.entity for r in (run, plain))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_test_triples_are_ranked_among_more_entities(tmp_path, few_steps):
    more = run_of().extend(NEW)
    ranks = rank(more.model, Queries(more.graph, more.graph.test))
    found = metrics(np.concatenate([r.resolve("realistic") for r in ranks.values()]))
    assert more.result("test")["mrr"] == found["mrr"]
    path = more.save(tmp_path / "more")
    assert f"| test | {found['mrr']:.4f} |" in (path / "README.md").read_text()
    assert Run.load(path).result("test") == more.result("test")


def test_rows_have_their_line_numbers(tmp_path):
    text = 'h,r,t\n"a ""b""",r,"c\nd"\n\ne,r,f\n'
    (tmp_path / "x.csv").write_text(text)
    assert read_numbered(tmp_path / "x.csv") == [
        (2, ['a "b"', "r", "c\nd"]), (5, ["e", "r", "f"])
    ]  # fmt: skip


def _file(folder, text):
    path = folder / "new.tsv"
    path.write_text(text)
    return path


def _failing(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error
