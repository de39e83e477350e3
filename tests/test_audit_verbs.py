"""The verbs ``audit``, ``relations`` and ``entities``: tables, JSON, the page, cleaned folders."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import TINY, all_triples, graph_of, graphs, random_graph
from nscaching import KnowledgeGraph, UserError, train
from nscaching.audit import clean, page, save
from nscaching.cli.main import main
from nscaching.data.graph import SPLITS
from test_report import HOSTILE
from test_report import check as check_page

plenty = settings(derandomize=True, deadline=None, max_examples=60)

# An inverse of five pairs, of which test asks for one; a blank node; a list of RDF.
PAIRS = [(f"a{i}", f"b{i}") for i in range(5)]
TRAIN = [(a, "has", b) for a, b in PAIRS] + [(b, "of", a) for a, b in PAIRS[:4]]
TRAIN += [("_:x", "rdf:first", "a0"), ("_:x", "rdf:rest", "rdf:nil"), ("a0", "near", "a1")]
TEST = [("b4", "of", "a4"), ("a1", "near", "a0"), ("a0", "has", "b0"), ("new", "near", "a1")]
FILES = {"train": TRAIN, "test": TEST}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "toy").mkdir()
    for split, rows in FILES.items():
        (tmp_path / "toy" / f"{split}.tsv").write_text("".join("\t".join(r) + "\n" for r in rows))
    return tmp_path


@pytest.fixture
def call(capsys):
    def run(*words):
        capsys.readouterr()
        main([str(word) for word in words])
        return capsys.readouterr().out

    return run


@pytest.fixture
def fails(capsys):
    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (stop.value.code, out) == (2, "")
        return err.splitlines()[-1].removeprefix("nscaching: ")

    return run


def named(graph, split):
    rows = graph.split(split).tolist()
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in rows]


# The audit.


def test_audit_tells_people(call):
    out = call("audit", "toy")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "triples of toy that train test" in lines
    assert "have an inverse or twin in train 8 66.7% 2 50.0%" in lines
    assert "have their reverse (t, r, h) in train 0 0.0% 1 25.0%" in lines
    assert "stand in an earlier split too 1 25.0%" in lines
    assert "have an entity that train has not 1 25.0%" in lines
    assert "inverse 2 10 has, of" in lines
    assert "blank node 1 _:x" in lines
    assert (
        "2 relations of RDF's plumbing in 2 triples: --drop-relations rdf:first rdf:rest" in lines
    )
    assert any(line.startswith("trivial rules score MRR ") for line in lines)


def test_audit_tells_programs(ask):
    told = ask("audit", "toy")
    same = json.loads(json.dumps(KnowledgeGraph.load("toy").audit().to_dict()))
    findings = (told.pop("findings"), same.pop("findings"))  # one names flags, one parameters
    assert told == same
    assert [len(words) for words in findings] == [6, 6]
    assert "which --drop-blank-nodes takes away" in findings[0][-2]
    assert told["splits"]["test"]["leaking"] == 2
    assert [r["name"] for r in told["by_relation"]][:2] == ["has", "of"]
    assert told["by_relation"][0]["counterparts"][0]["kind"] == "inverse"


def test_the_page_is_one_safe_page(call, here):
    assert "page: audit.html" in call("audit", "toy", "--page", "audit.html")
    found = check_page((here / "audit.html").read_text(encoding="utf-8"))
    assert "have an inverse or twin in train" in found.words
    assert "50.0%" in found.words
    assert "inverse: of" in found.words


@pytest.mark.parametrize("empty", [(), ("test",), ("valid", "test")])
def test_the_page_of_hostile_names(empty):
    random = np.random.default_rng(0)
    size = len(HOSTILE)
    splits = {
        split: random.integers(size, size=(count, 3))
        for split, count in (("train", 200), ("valid", 20), ("test", 20))
        if split not in empty
    }
    graph = KnowledgeGraph.from_arrays(
        HOSTILE, HOSTILE, splits, name=HOSTILE[0], labels={HOSTILE[1]: HOSTILE[0]}, notes=HOSTILE
    )
    found = check_page(page.render(graph.audit()))
    assert "<script>alert(1)</script>" in found.words
    assert "onmouseover" in found.words


def test_a_page_lists_at_most_so_many_relations(monkeypatch):
    monkeypatch.setattr(page, "MOST", 30)
    graph = graph_of([(0, r, 1 + r % 3) for r in range(40)])
    found = check_page(page.render(graph.audit()))
    assert "5 more relations" in found.words
    assert "The 10 smallest are left out here." in found.words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--page old.html", "old.html exists already; choose another --page, or say --overwrite"),
        ("--page toy", "toy is a folder; --page names a file"),
        ("--clean toy", "toy exists already; choose another --clean"),
        ("--clean toy --overwrite", "toy exists already; choose another --clean"),
        ("--clean new --page new/x.html", "--page must not lie in the folder of --clean"),
        ("--clean old.html/new", "cannot write old.html/new: Not a directory"),
        ("--drop-relations has nope --clean new", "unknown relation 'nope'; known: has, of"),
        ("--drop-relations has of near rdf:first rdf:rest", "nothing of the train split of toy"),
    ],
)
def test_what_audit_refuses(fails, here, words, message):
    (here / "old.html").write_text("old")
    assert fails("audit", "toy", *words.split()).startswith(message)
    assert (here / "old.html").read_text() == "old"
    assert {p.name for p in here.iterdir()} == {"toy", "old.html"}


def test_a_page_is_overwritten_when_asked(call, here):
    (here / "old.html").write_text("old")
    call("audit", "toy", "--page", "old.html", "--overwrite")
    check_page((here / "old.html").read_text(encoding="utf-8"))


# Cleaning.


def test_clean_takes_away_repeats_alone(call, here):
    out = call("audit", "toy", "--clean", "new")
    assert re.search(r"in an earlier split too +0 +0 +1 *$", out, re.MULTILINE)
    assert out.endswith("clean: new\n")
    graph = KnowledgeGraph.load("new")
    assert named(graph, "train") == TRAIN
    assert named(graph, "test") == [row for row in TEST if row not in TRAIN]
    assert sorted(p.name for p in (here / "new").iterdir()) == ["test.tsv", "train.tsv"]


def test_clean_takes_away_what_is_named(ask):
    flags = ["--drop-relations", "near", "--drop-blank-nodes", "--drop-leaks"]
    told = ask("audit", "toy", *flags, "--clean", "new")
    assert told["removed"] == {
        "relation near": {"train": 1, "valid": 0, "test": 2},
        "blank nodes": {"train": 2, "valid": 0, "test": 0},
        "in an earlier split too": {"train": 0, "valid": 0, "test": 1},
        "inverse or twin in train": {"train": 0, "valid": 0, "test": 1},
    }
    graph = KnowledgeGraph.load(told["clean"])
    assert named(graph, "train") == [r for r in TRAIN if r[1] in ("has", "of")]
    assert graph.relations == ["has", "of"]
    assert (told["splits"]["test"]["triples"], len(graph.test)) == (0, 0)


def test_without_a_folder_the_audit_is_of_what_would_be_left(ask, here):
    told = ask("audit", "toy", "--drop-leaks")
    assert told["splits"]["test"] | {"leaking": 0, "triples": 2} == told["splits"]["test"]
    assert {p.name for p in here.iterdir()} == {"toy"}


def test_what_is_left_of_a_single_file_is_split_anew(ask, here):
    rows = [(f"x{i % 9}", "r", f"x{i // 9}") for i in range(81)]
    rows += [(f"x{i}", "s", f"y{i}") for i in range(9)] * 2
    (here / "one.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    told = ask("audit", "one.tsv", "--drop-relations", "s", "--clean", "new", "--split-seed", 3)
    graph = KnowledgeGraph.load("new")
    assert [len(graph.split(s)) for s in SPLITS] == [73, 4, 4]
    assert sorted(row for s in SPLITS for row in named(graph, s)) == sorted(rows[:81])
    assert sum(told["removed"]["relation s"].values()) == 9


def test_labels_are_kept(call, here):
    (here / "toy" / "entity_labels.tsv").write_text("a0\tFirst one\n_:x\tGone\nnear\tIs near\n")
    call("audit", "toy", "--drop-blank-nodes", "--clean", "new")
    graph = KnowledgeGraph.load("new")
    assert graph.labels == {"a0": "First one", "near": "Is near"}
    assert graph.label(graph.entity_id("a0")) == "First one"


@plenty
@given(graphs(), st.sets(st.integers(0, 2)), st.booleans())
def test_cleaned_graphs(graph, dropped, drop_leaks):
    dropped = sorted(r for r in dropped if r < len(graph.relations))
    names = [graph.relations[r] for r in dropped]
    left = {s: [row for row in named(graph, s) if row[1] not in names] for s in SPLITS}
    expected = {s: list(dict.fromkeys(left[s])) for s in SPLITS}
    expected["valid"] = [row for row in expected["valid"] if row not in left["train"]]
    earlier = [*left["train"], *left["valid"]]
    expected["test"] = [row for row in expected["test"] if row not in earlier]
    if not expected["train"]:
        with pytest.raises(UserError, match="nothing of the train split"):
            clean(graph, names, drop_leaks=drop_leaks)
        return
    cleaned = clean(graph, names, drop_leaks=drop_leaks)
    found = {s: named(cleaned.graph, s) for s in SPLITS}
    if not drop_leaks:
        assert found == expected
    for split in SPLITS:
        taken = sum(counts.get(split, 0) for counts in cleaned.removed.values())
        assert len(found[split]) == len(graph.split(split)) - taken
        assert set(found[split]) <= set(expected[split])
    told = cleaned.graph.audit()
    assert not told.entities.kinds["no triple"].any()
    assert (told.relations.triples > 0).all()
    assert told.of_split("test")["repeated"] == told.of_split("valid")["repeated"] == 0


ODD = st.text(st.sampled_from("ab \t\n\r\x00\x85\u2028\u00a0\ufeff,\"'#\ud800é日"), max_size=4)
NAMES = st.one_of(ODD, st.sampled_from(["head", "relation", "tail", "h", "r", "t", "Subject"]))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(NAMES, min_size=3, max_size=3), st.lists(NAMES, min_size=1, max_size=1))
def test_any_names_are_read_back_or_refused(tmp_path_factory, entities, relations):
    entities = list(dict.fromkeys(entities))
    n = len(entities)
    splits = {"train": np.array([[0, 0, n - 1], [n - 1, 0, 0]]), "test": np.array([[0, 0, 0]])}
    graph = KnowledgeGraph.from_arrays(entities, relations, splits, labels={entities[0]: "\tx\n"})
    folder = tmp_path_factory.mktemp("saved") / "new"
    with suppress(UserError):
        save(graph, folder)
    if not folder.exists():
        with pytest.raises(UserError, match="has no place in a table"):
            save(graph, folder)
        assert list(folder.parent.iterdir()) == []
        return
    again = KnowledgeGraph.load(folder)
    assert {s: named(again, s) for s in SPLITS} == {s: named(graph, s) for s in SPLITS}
    assert again.label(again.entity_id(entities[0])) == "x"


def test_plain_names_are_not_refused(tmp_path):
    names = ["http://x.org/a#b", '"a literal"@en', "two words", "日本", "x,y", "_:b1", "-", "'"]
    triples = [(i, 0, (i + 1) % len(names)) for i in range(len(names))]
    graph = KnowledgeGraph.from_arrays(names, ["is a"], {"train": np.array(triples)})
    again = KnowledgeGraph.load(save(graph, tmp_path / "new"))
    assert named(again, "train") == named(graph, "train")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    before = Path.write_text

    def full(path, text, **rest):
        if path.name == "test.tsv":
            raise OSError(28, "No space left on device")
        return before(path, text, **rest)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=r"cannot write .*new: No space left on device"):
        save(random_graph(), tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["toy"]


def test_the_negatives_that_are_not_written_are_named(here, capsys):
    names = "2\na\t0\nb\t1\n"
    files = {"entity2id": names, "relation2id": "1\nr\t0\n", "train2id": "1\n0 1 0\n"}
    (here / "ids").mkdir()
    for file, text in (files | {"test2id": "1\n1 0 0\n", "test_neg": "1 0 0 -1\n"}).items():
        (here / "ids" / f"{file}.txt").write_text(text)
    main(["audit", "ids", "--clean", "new"])
    assert "note: --clean does not write the negatives of test_neg.txt" in capsys.readouterr().err


def test_the_program_of_the_docs(here):
    docs = Path(__file__).parents[1] / "docs" / "audit.md"
    (program,) = re.findall(r"```python\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(program, "audit.md", "exec"), {})
    assert "borders" not in KnowledgeGraph.load("world-clean").relations
    check_page((here / "audit.html").read_text(encoding="utf-8"))


# The names.


def test_relations(call, ask):
    lines = [" ".join(line.split()) for line in call("relations", "toy").splitlines()]
    assert lines[0] == "relation triples heads tails tails/head heads/tail class inverse"
    assert lines[1:3] == ["has 5 5 5 1.0 1.0 1-1 of", "of 5 5 5 1.0 1.0 1-1 has"]
    told = ask("relations", "toy")
    assert told["graph"] == "toy"
    assert [each["triples"] for each in told["relations"]] == [5, 5, 3, 1, 1]


def test_a_symmetric_relation_is_its_own_inverse(call):
    assert re.search(r"^ borders +654 .* itself *$", call("relations", "world"), re.MULTILINE)


def test_relations_and_entities_of_a_run(call, ask, here):
    graph = random_graph()
    train(graph, out="run", **TINY)
    told = ask("relations", "run")["relations"]
    assert sum(each["triples"] for each in told) == len(all_triples(graph))
    assert ask("entities", "run", "e1")["matches"] == 3  # e1, e10 and e11


def test_entities(call, ask, fails):
    assert call("entities", "world", "portugal").split()[:4] == [
        "entity",
        "triples",
        "Portugal",
        "29",
    ]
    told = ask("entities", "toy", "a?")
    assert [one["name"] for one in told["entities"]][:2] == ["a0", "a1"]
    assert told["matches"] == 5
    assert ask("entities", "toy", "B")["matches"] == 5
    assert ask("entities", "toy", "*1")["matches"] == 2
    assert "… and 10 more; --top 13 shows all" in call("entities", "toy", "--top", 3)
    assert fails("entities", "world", "Portugl").startswith(
        "unknown entity 'Portugl'; nearest: Portugal, Portugues"
    )
    assert fails("entities", "toy", "--top", 0) == "--top must be at least 1, not 0"
    assert fails("entities", "toy", "zz*").startswith("unknown entity 'zz*'; known: a0, b0, ")
