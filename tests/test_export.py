"""Vectors in files: they come back bit for bit, and other programs open them."""

from __future__ import annotations

import io
import re
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers import TINY, graph_of, new_model
from nscaching import Run, UserError, train
from nscaching.cli import progress
from nscaching.cli.main import main
from nscaching.models import MODELS
from nscaching.runs.export import (
    FORMATS,
    Vectors,
    decode,
    encode,
    load_vectors,
    text_files,
    vectors_of,
)

PAGE = (Path(__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")

# What a name may be in Python; a file of triples brings most of them too.
AWKWARD = [
    "plain", "two words", " begins", "ends ", 'say "hi"', "it's", "100%", "%20", "%", "%25",
    "Zürich", "שלום", "東京", "👩‍👧 🙂", "a\u00a0b", "a\u2028b", "a\x85b", "tab\there",
    "line\nbreak", "cr\r", "nul\0", "\0", "", "\ufeffbom", "back\\slash", "5144", "-1", "nan",
    "a,b;c|d", "x" * 300,
]  # fmt: skip
every_suffix = pytest.mark.parametrize("suffix", FORMATS)
plenty = settings(derandomize=True, deadline=None, max_examples=60)


def awkward_graph():
    """Make a graph of awkward names, some with labels."""
    n = len(AWKWARD)
    triples = [(i, i % 3, (7 * i + 1) % n) for i in range(n)]
    graph = graph_of(triples, triples[:4], triples[4:8], entities=n, relations=3)
    graph.entities, graph.relations = list(AWKWARD), ["is a", "100 %\0", ""]
    graph.labels = {"plain": "Plain label", "100%": "Wholly 🙂", "": "Nothing"}
    return graph


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train once, write the run and load it again."""
    trained = train(awkward_graph(), **TINY | {"model": "ComplEx"})
    return Run.load(trained.save(tmp_path_factory.mktemp("runs") / "awkward"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def same_bits(a, b):
    return a.dtype == b.dtype == np.float32 and a.shape == b.shape and a.tobytes() == b.tobytes()


def assert_same(found, expected, labels=True):
    assert found.entities == expected.entities
    assert found.relations == expected.relations
    assert found.labels == (expected.labels if labels else expected.entities)
    assert same_bits(found.entity, expected.entity)
    assert same_bits(found.relation, expected.relation)


# There and back.


@every_suffix
def test_a_run_comes_back(run, suffix, tmp_path):
    files = run.export(f"new/kind=1/x{suffix}")
    assert files[0] == Path(f"new/kind=1/x{suffix}")
    assert sorted(files) == sorted(Path("new/kind=1").iterdir())  # and nothing unfinished
    found = load_vectors(files[0])
    expected = vectors_of(run.model, run.graph)
    assert_same(found, expected, labels=suffix != ".tsv")
    assert expected.labels[:2] == ["Plain label", "two words"]
    assert torch.equal(torch.from_numpy(found.entity), run.model.table().detach())
    assert torch.equal(torch.from_numpy(found.relation), run.model.relation.detach())
    plain = tmp_path / "plain"
    plain.touch()
    assert all(file.stat().st_mode == plain.stat().st_mode for file in files)


@every_suffix
@pytest.mark.parametrize("name", MODELS.names())
def test_every_model_comes_back(suffix, name):
    graph = graph_of([(0, 0, 1), (1, 1, 2)])
    whole = Run(graph, None, new_model(name, 3, 2))
    whole.export(f"x{suffix}")
    assert_same(load_vectors(f"x{suffix}"), vectors_of(whole.model, graph))


floats = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
rows = st.integers(1, 3).flatmap(
    lambda dim: st.lists(st.lists(floats, min_size=dim, max_size=dim), min_size=1, max_size=4)
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@every_suffix
@given(
    entity=rows,
    relation=rows,
    words=st.lists(names, min_size=8, max_size=8, unique=True),
    label=names,
)
@example([[1e-38, -0.0], [3.4e38, 0.1]], [[1 / 3]], [*"\0 %", "\0\0", "", "%00", "a", "b"], "")
@plenty
def test_any_vectors_come_back(suffix, entity, relation, words, label):
    torch.set_flush_denormal(False)
    entity, relation = np.array(entity, np.float32), np.array(relation, np.float32)
    entities, relations = words[: len(entity)], words[4 : 4 + len(relation)]
    given_ = Vectors(entities, [label, *entities[1:]], entity, relations, relation)
    file = Path(f"x{suffix}")
    files = text_files(file) if suffix in (".tsv", ".csv") else [file]
    write, _ = FORMATS[suffix]
    write(given_, lambda done, of: None, *files)
    assert_same(load_vectors(files[0]), given_, labels=suffix != ".tsv")


@given(names)
@example("%")
@example("")
@plenty
def test_words_of_the_text_form(name):
    word = encode(name)
    assert decode(word) == name
    assert word
    assert not any(c.isspace() or c < " " for c in word)
    assert len(word.split()) == len(word.splitlines()) == 1
    if name.isalnum():
        assert word == name


# Other programs.


def test_gensim_opens_the_text(run):
    gensim = pytest.importorskip("gensim.models")
    files = run.export("x.tsv")
    expected = vectors_of(run.model, run.graph)
    pairs = ((expected.entities, expected.entity), (expected.relations, expected.relation))
    for file, (names, rows) in zip(files, pairs, strict=True):
        opened = gensim.KeyedVectors.load_word2vec_format(str(file))
        assert [decode(word) for word in opened.index_to_key] == names
        assert same_bits(opened.vectors, rows)
    assert files[1] == Path("x.relations.tsv")


def test_pyarrow_opens_parquet(run, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)  # nobody needs it
    monkeypatch.setattr("nscaching.runs.export.ROW_GROUP", 7)  # several groups
    run.export("x.parquet")
    expected = vectors_of(run.model, run.graph)
    table = pq.read_table("x.parquet")
    assert table.column_names == ["kind", "name", "label", "vector"]
    assert pq.ParquetFile("x.parquet").num_row_groups == 6
    entities = table.slice(0, len(expected.entities)).to_pylist()
    assert {row["kind"] for row in entities} == {"entity"}
    assert [row["label"] for row in entities] == expected.labels
    assert entities[3]["vector"] == expected.entity[3].tolist()
    assert_same(load_vectors("x.parquet"), expected)


def test_numpy_opens_the_archive_without_pickle(run):
    run.export("x.npz")
    with np.load("x.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    assert arrays["entities"].tolist() == [name.rstrip("\0") for name in AWKWARD]
    assert same_bits(arrays["entity"], vectors_of(run.model, run.graph).entity)
    assert all(array.dtype.kind in "Ufi" for array in arrays.values())


def test_the_page_runs_as_it_stands(run, capsys):
    graph = graph_of([(0, 0, 1), (1, 1, 2), (2, 0, 3)])
    graph.entities = ["Portugal", "Spain", "New Zealand", "Peru"]
    for suffix in FORMATS:
        Run(graph, None, new_model("TransE", 4, 2)).export(f"vectors{suffix}")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(block, {})
    out = capsys.readouterr().out
    assert "New Zealand" in out
    assert "['r0', 'r1'] 4" in out
    assert "Portugal [" in out


# The command line.


def test_the_verb(run, ask, capsys):
    main(["export", str(run.path), "--to", "x.tsv"])
    out, err = capsys.readouterr()
    assert out == f"{len(AWKWARD)} entities and 3 relations: x.tsv, x.relations.tsv\n"
    assert err == ""
    before = Path("x.tsv").read_bytes()
    Path("x.tsv").write_text("mine")
    for remove in (None, "x.tsv"):  # each of the two files is guarded
        if remove:
            Path(remove).unlink()
        with pytest.raises(SystemExit) as stop:
            main(["export", str(run.path), "--to", "x.tsv"])
        assert stop.value.code == 2
        assert "exists already; choose another --to, or say --overwrite" in capsys.readouterr().err
    found = ask("export", str(run.path), "--to", "x.tsv", "--overwrite")
    assert found["files"] == ["x.tsv", "x.relations.tsv"]
    assert (found["entities"], found["relations"]) == (len(AWKWARD), 3)
    assert Path("x.tsv").read_bytes() == before


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("x.txt", "unknown suffix '.txt'; known: .safetensors, .npz, .tsv, .csv, .parquet"),
        ("x", "unknown suffix 'x'; known: .safetensors"),
        ("folder.npz", "folder.npz is a folder; path names a file"),
        ("file/x.npz", "cannot write file/x.npz: "),
        ("link.npz", "link.npz exists already"),
    ],
)
def test_where_nothing_can_be_written(run, to, message):
    Path("folder.npz").mkdir()
    Path("file").write_text("a file")
    Path("link.npz").symlink_to("nowhere")
    with pytest.raises(UserError, match=re.escape(message)):
        run.export(to)
    assert Path("file").read_text() == "a file"


def test_suffixes_in_any_case(run):
    run.export("X.NPZ")
    assert_same(load_vectors("X.NPZ"), vectors_of(run.model, run.graph))


@every_suffix
def test_what_fails_leaves_the_old_file_and_no_other(run, suffix, monkeypatch):
    files = run.export(f"x{suffix}")
    before = [file.read_bytes() for file in files]
    Path(f"x{suffix}.partial").write_text("of the user")

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.export(f"x{suffix}", overwrite=True, progress=stop)
    assert [file.read_bytes() for file in files] == before
    assert Path(f"x{suffix}.partial").read_text() == "of the user"
    assert sorted(Path().iterdir()) == sorted([*files, Path(f"x{suffix}.partial")])


def test_a_diverged_model_is_not_exported(run):
    model = new_model("TransE", len(AWKWARD), 3)
    torch.nn.init.constant_(model.relation, float("nan"))
    with pytest.raises(UserError, match="diverged"):
        Run(run.graph, None, model).export("x.npz")
    assert not Path("x.npz").exists()


def test_parquet_without_pyarrow(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for call in (run.export, load_vectors):
        with pytest.raises(UserError, match=re.escape('pip install "nscaching[parquet]"')):
            call("x.parquet")


# Progress.


@every_suffix
def test_progress_reaches_the_end(run, suffix):
    heard = []
    run.export(f"x{suffix}", progress=lambda *at: heard.append(at))
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1]


@pytest.mark.parametrize(("slow", "said"), [(True, "writing: 1/2"), (False, "")])
def test_a_bar_is_shown_only_when_it_takes_long(capsys, slow, said):
    with progress.when_slow("writing", after=0.05 if slow else 60) as heard:
        heard(1, 2)
        time.sleep(0.2)
    assert said in capsys.readouterr().err
    if not slow:
        assert capsys.readouterr().err == ""


# Damage.


@every_suffix
@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-40], lambda data: b"x" * 99]
)
def test_a_damaged_file_is_said_to_be(run, suffix, damage):
    (file, *_) = run.export(f"x{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match=rf"^x{suffix}: cannot read the vectors: ") as raised:
        load_vectors(file)
    assert "\n" not in str(raised.value)


@every_suffix
def test_a_file_that_is_not_there(suffix):
    with pytest.raises(UserError, match=rf"^x{suffix}: cannot read the vectors: No such file"):
        load_vectors(f"x{suffix}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 1\na 1\n", "has 1 vectors where line 1 says 2"),
        ("1 1\na 1\nb 2\n", "line 3 does not fit line 1"),
        ("1 2\na 1\n", "line 2 does not fit line 1"),
        ("1 1\na x\n", "could not convert string to float"),
        ("one\n", "line 1 is not a count and a length"),
    ],
)
def test_text_that_does_not_fit(text, message):
    Path("x.relations.tsv").write_text("1 1\nr 1\n")
    Path("x.tsv").write_text(text)
    with pytest.raises(UserError, match=message):
        load_vectors("x.tsv")
    Path("x.tsv").write_text("1 1\na 1\n")
    Path("x.relations.tsv").unlink()
    with pytest.raises(UserError, match=r"^x.relations.tsv: cannot read the vectors: No such file"):
        load_vectors("x.tsv")


def test_a_pickle_is_not_opened(run):
    run.export("x.npz")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile("x.npz", "a") as archive:
        archive.writestr("more.npy", pickled.getvalue())
    with pytest.raises(UserError, match="allow_pickle"):
        load_vectors("x.npz")
