"""RDF files: the same triples from every format, literals and blank nodes, prefixes, flaws."""

from __future__ import annotations

import gzip
import json
import sys
import time

import pytest

from helpers import written
from nscaching import KnowledgeGraph, UserError
from nscaching.cli.main import main
from nscaching.cli.verbs.predict import is_short_form
from nscaching.data.prefixes import Prefixes
from nscaching.data.readers import blocks

EX = "http://ex.org/"
TRIPLES = [("a", "p", "b"), ("b", "p", "c"), ("c", "q", "a"), ("é", "q", "日本")]
TURTLE = """@prefix : <http://ex.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix dbr: <http://own.org/> .
:a :p :b ; rdfs:label "Ah"@de , "Ay"@en , "Ei" ; :age 5 .
:b :p [ :q :a ] , _:named .
dbr:x :q <http://dbpedia.org/resource/AC/DC> , <urn:isbn:1> .
:p rdfs:label "pea\\u001b\\n  green" .
"""


def named(graph):
    """Return the triples of all splits by name."""
    return {
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for split in ("train", "valid", "test")
        for h, r, t in graph.split(split).tolist()
    }


def nt(triples, graph=""):
    return "".join(f"<{EX}{h}> <{EX}{r}> <{EX}{t}>{graph} .\n" for h, r, t in triples)


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.nt", "# a comment\n\n" + nt(TRIPLES)),
        ("a.NT", "\ufeff" + nt(TRIPLES)),
        ("a.nq", nt(TRIPLES, " <http://ex.org/g>")),
        ("a.ttl", f"@prefix : <{EX}> .\n:a :p :b . :b :p :c .\n:c :q :a . :é :q :日本 .\n"),
    ],
)
def test_every_format_gives_the_same_triples(tmp_path, name, text, end, packed):
    graph = KnowledgeGraph.load(written(tmp_path, name + packed, text.replace("\n", end)))
    assert named(graph) == {tuple(EX + part for part in triple) for triple in TRIPLES}
    assert graph.name == "a"
    assert [note for note in graph.notes if "split by" not in note] == []


def test_literals_are_left_out_and_counted_or_asked_for(tmp_path):
    path = written(tmp_path, "a.ttl", TURTLE)
    graph = KnowledgeGraph.load(path)
    assert not any(name.startswith('"') for name in graph.entities)
    left = "a.ttl: 5 triples with a literal were left out (4 rdfs:label are used as labels)"
    assert f"{left}; literals takes them" in graph.notes
    more = KnowledgeGraph.load(path, literals=True)
    five = '"5"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert named(more) - named(graph) >= {(f"{EX}a", f"{EX}age", five)}
    assert len(named(more)) == len(named(graph)) + 5
    assert more.source.literals
    assert more.label(more.entities.index(five)) == '"5"^^xsd:integer'
    assert all(name.isprintable() for name in more.entities)
    assert not any("literal" in note for note in more.notes)


def test_blank_nodes_have_the_same_names_every_time(tmp_path):
    path = written(tmp_path, "a.ttl", TURTLE)
    first, second = KnowledgeGraph.load(path), KnowledgeGraph.load(path)
    assert first.entities == second.entities
    assert {name for name in first.entities if name.startswith("_:")} == {"_:[1]", "_:named"}
    # A name that only looks random is kept where a file says it.
    given = "_:abcdefabcdefabcdefabcdefabcdef12"
    plain = KnowledgeGraph.load(written(tmp_path, "b.nt", f"{given} <{EX}p> _:x .\n"))
    assert plain.entities == [given, "_:x"]


def test_anonymous_nodes_of_two_files_differ(tmp_path):
    for split in ("train", "valid"):
        written(tmp_path, f"{split}.ttl", f"@prefix : <{EX}> .\n:a :p [] .\n")
    graph = KnowledgeGraph.load(tmp_path)
    assert graph.entities == [f"{EX}a", "_:[1]", "_:[2]"]


def test_named_graphs_are_dropped_and_said_if_several(tmp_path):
    text = nt(TRIPLES, f" <{EX}g>") + nt(TRIPLES[:2], f" <{EX}h>")
    graph = KnowledgeGraph.load(written(tmp_path, "a.nq", text))
    assert len(named(graph)) == 4
    assert "a.nq: the names of its 2 graphs were dropped" in graph.notes
    assert "2 duplicate triples dropped from a.nq" in graph.notes


def test_labels_are_given_ones_then_rdfs_labels_then_short_forms(tmp_path):
    path = written(tmp_path, "a.ttl", TURTLE)
    graph = KnowledgeGraph.load(path)
    labels = {name: graph.labels.get(name) for name in graph.entities}
    assert labels[f"{EX}a"] == "Ay"  # in English
    assert labels[f"{EX}b"] == ":b"
    assert labels["http://own.org/x"] == "dbr:x"  # the file's prefix, not the well-known one
    assert labels["http://dbpedia.org/resource/AC/DC"] is None
    assert labels["_:named"] is None
    assert graph.relation_label(graph.relations.index(f"{EX}p")) == "pea green"
    assert graph.relation_id("Pea green") == graph.relation_id(f"{EX}p")
    assert graph.entity_id("dbr:x") == graph.entities.index("http://own.org/x")
    with pytest.raises(UserError, match=r"unknown relation 'dbo:x'; known: .*pea green, :q"):
        graph.relation_id("dbo:x")
    given = written(tmp_path, "labels.tsv", f"{EX}a\tThe A\n")
    assert KnowledgeGraph.load(path, labels=given).labels[f"{EX}a"] == "The A"


def test_relations_of_one_label_are_told_apart_by_name(tmp_path):
    text = "@prefix : <http://ex.org/> .\n@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    text += ':a :p :b ; :q :b .\n:p rdfs:label "x" . :q rdfs:label "x" .\n'
    graph = KnowledgeGraph.load(written(tmp_path, "a.ttl", text))
    with pytest.raises(UserError, match="2 relations are labelled 'x'; say which: :p, :q"):
        graph.relation_id("x")
    assert [graph.relation_id(name) for name in (":p", ":q", "p", "q")] == [0, 1, 0, 1]
    assert graph.relation_id(f"{EX}q") == 1


def test_short_forms():
    prefixes = Prefixes()
    prefixes.add({"": EX, "id": f"{EX}id-", "e": "http://empty.org/", "none": ""})
    for name, short in {
        f"{EX}a": ":a",
        f"{EX}a/b#c": ":a/b#c",
        f"{EX}id-7": "id:7",
        EX: EX,
        "http://www.wikidata.org/entity/Q1": "wd:Q1",
        "http://dbpedia.org/resource/Category:X": "dbc:X",
        "http://unknown.org/x": "http://unknown.org/x",
        "_:x": "_:x",
        '"a"@en': '"a"@en',
        '"1"^^<http://unknown.org/t>': '"1"^^http://unknown.org/t',
        "": "",
    }.items():
        assert prefixes.shorten(name) == short
    assert is_short_form("wd:Q1", "http://www.wikidata.org/entity/Q1")
    assert not is_short_form("Berlin", "http://dbpedia.org/resource/Berlin")
    assert not is_short_form("a:b", "b")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.nt", "", "a.nt: the file holds no triples$"),
        ("a.nt", "# nothing\n", "a.nt: the file holds no triples$"),
        (
            "a.nt",
            f'<{EX}a> <{EX}p> "x" .',
            "holds no triples but 1 with a literal, which literals takes",
        ),
        ("a.nt", nt(TRIPLES) + "<http://x> <http://y> .\n", "a.nt:5: "),
        ("a.nt", nt(TRIPLES[:1]) + "<a> <b> <c> .\n", "a.nt:2: No scheme found in an absolute IRI"),
        ("a.nt", "a\tb\tc\n", "a.nt:1: "),
        ("a.nt", b"\xff\xfe", "a.nt:1: Invalid UTF-8"),
        ("a.ttl", "@prefix : <http://x/> .\n\n:a :b ex:c .\n", "a.ttl:3: .*ex"),
        ("a.ttl", ':a :b "x', "a.ttl:1: "),
        ("a.nq", nt(TRIPLES, " <g>"), "a.nq:1: "),
        ("a.nt.gz", b"no gzip", "a.nt.gz: cannot read it: "),
        ("a.rdf", "<rdf/>", "a.rdf: of RDF, only .nt, .ttl, .nq .* are read: convert it"),
    ],
)
def test_a_flaw_is_named_with_file_and_line(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(UserError, match=message) as error:
        KnowledgeGraph.load(path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < len(str(path)) + 250


def test_long_lines_and_literals_are_refused(tmp_path, monkeypatch):
    path = written(tmp_path, "a.nt.gz", nt(TRIPLES) + f"<{EX}" + "x" * (17 << 20))
    with pytest.raises(UserError, match=r"a\.nt\.gz:5: the line is longer than 16,777,216 bytes"):
        KnowledgeGraph.load(path)
    text = f'@prefix : <{EX}> .\n:a :b """' + ("x" * 1023 + "\n") * (17 << 10)
    path = written(tmp_path, "a.ttl.gz", text)
    with pytest.raises(UserError, match=r"a\.ttl\.gz:\d+: a name or literal is longer"):
        KnowledgeGraph.load(path)
    monkeypatch.setattr(blocks, "BLOCK", 7)  # a name may lie in many blocks
    assert len(named(KnowledgeGraph.load(written(tmp_path, "b.nt", nt(TRIPLES))))) == 4


@pytest.mark.parametrize("name", ["a.nt", "a.nq", "a.nt.gz", "a.ttl"])
def test_lines_are_counted_over_blocks_of_blank_lines(tmp_path, monkeypatch, name):
    monkeypatch.setattr(blocks, "BLOCK", 64)
    blank, good = "\n \t\r\n" * 100, nt(TRIPLES[:3])
    path = written(tmp_path, name, blank + good + blank + good + "<a> <b> <c> .\n" + blank + good)
    with pytest.raises(UserError, match=rf"{name}:407: No scheme found in an absolute IRI"):
        KnowledgeGraph.load(path)
    graph = KnowledgeGraph.load(written(tmp_path, name, blank + good + blank + good + blank))
    assert len(named(graph)) == 3
    assert "3 duplicate triples dropped" in graph.notes[0]


def test_a_hundred_megabytes_of_line_ends_are_read_in_seconds(tmp_path):
    path = tmp_path / "a.nt.gz"
    path.write_bytes(gzip.compress(b"\n" * (100 << 20), 1) + gzip.compress(nt(TRIPLES).encode()))
    began = time.perf_counter()
    assert len(named(KnowledgeGraph.load(path))) == 4
    assert time.perf_counter() - began < 3  # the parser alone takes longer


def test_without_the_library_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(UserError, match=r'pip install "nscaching\[rdf\]"'):
        KnowledgeGraph.load(written(tmp_path, "a.nt", nt(TRIPLES)))


def test_a_run_shows_short_names_and_keeps_whole_ones(tmp_path, capsys):
    lines = [(f"e{i}", f"r{i % 2}", f"e{(i * i + 3) % 9}") for i in range(9)]
    text = nt(lines).replace(EX, "http://dbpedia.org/resource/") + f'<{EX}a> <{EX}p> "five" .\n'
    for split in ("train", "valid", "test"):
        written(tmp_path, f"{split}.nt", text)
    run = str(tmp_path / "run")
    words = ["--epochs=1", "--dim=4", "--n1=4", "--n2=4", "--threads=1", "--literals", "--out"]
    main(["train", str(tmp_path), *words, run])
    assert "literals = true" in (tmp_path / "run" / "config.toml").read_text()
    assert "--literals" in (tmp_path / "run" / "README.md").read_text()
    vocabulary = json.loads((tmp_path / "run" / "vocabulary.json").read_text())
    assert "http://dbpedia.org/resource/e1" in vocabulary["entities"]
    assert '"five"' in vocabulary["entities"]
    capsys.readouterr()
    main(["evaluate", run])
    main(["predict", run, "--head", "dbr:e1", "--relation", "dbr:r1"])
    main(["predict", run, "--head", "dbr:e1", "--tail", "dbr:e2"])
    main(["inspect", run, "--head", "dbr:e1", "--relation", "dbr:r1"])
    with pytest.raises(SystemExit):
        main(["inspect", run, "--head", "dbr:e1", "--relation", "dbr:r0"])
    out, errors = capsys.readouterr()
    assert out.count("(dbr:e1, dbr:r1, ?)") == 2
    assert "(dbr:e1, dbr:r0, ?) has no cache" in errors
    assert "relations of dbr:e1 there: dbr:r1" in errors
    assert "http://dbpedia.org" not in out
    assert "dbr:r0" in (tmp_path / "run" / "report.html").read_text()
