"""The figure of a cache over epochs: a table of names."""

from __future__ import annotations

import csv
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from helpers import TINY, graph_of, random_graph
from nscaching import ProbeConfig, UserError, train
from nscaching.cli.main import main
from nscaching.paper.figures import cache, draw
from nscaching.paper.figures._drawing import Page, Table, write
from nscaching.paper.figures._logs import Log

SMALL = random_graph(entities=15, train=60, valid=12, test=12)
LABELS = {f"e{i}": f"$name_{{ <{i}> 猫" for i in range(15)}
GRAPH = graph_of(SMALL.train, SMALL.valid, SMALL.test, 15, 3, labels=LABELS)
HEAD, RELATION, TAIL = (int(i) for i in GRAPH.train[0])
QUERY = {"head": f"e{HEAD}", "relation": f"r{RELATION}", "tail": None}
FLAGS = ["--head", f"e{HEAD}", "--relation", f"r{RELATION}"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = TINY | {"epochs": 4, "n1": 6}
    out = tmp_path_factory.mktemp("runs") / "run"
    return train(GRAPH, **settings, probes=ProbeConfig(snapshots=(0, 2)), out=out)


def test_a_row_for_each_epoch_is_what_inspect_samples(run):
    (page,) = cache.pages([Log(run.path)], [], **QUERY)
    table, asked = page.table, run.inspect(**QUERY, sample=5)
    assert page.title.startswith(f"cache of ({LABELS[QUERY['head']]}, {QUERY['relation']}, ?): ")
    assert table.headings == ["epoch", "tails", "5 of the entities", "", "", "", ""]
    assert [cells[0] for cells in table.cells] == ["0", "2", "4"]
    for i, (cells, epoch) in enumerate(zip(table.cells, asked["epochs"], strict=True)):
        assert cells[1] == f"{epoch['of_relation']} of {epoch['distinct']}"
        for j, (text, entity) in enumerate(zip(cells[2:], epoch["entities"], strict=True), 2):
            assert text == entity["label"] + ("*" if entity["known"] else "")
            assert ((i, j) in table.marked) == entity["of_relation"]
    assert table.marked
    assert "tail of r" in table.note


def test_the_data_behind_have_every_cached_entity(run):
    asked = {"head": None, "relation": QUERY["relation"], "tail": f"e{TAIL}"}
    (page,) = cache.pages([Log(run)], [], **asked)
    for epoch in (0, 2, 4):
        (whole,) = run.inspect(**asked, epoch=epoch)["epochs"]
        rows = [row for row in page.rows if row["epoch"] == epoch]
        assert [{key: row[key] for key in whole["entities"][0]} for row in rows] == whole[
            "entities"
        ]
        assert sum(row["shown"] for row in rows) == min(5, whole["distinct"])
    assert page.table.headings[1] == "heads"


def test_it_is_written_from_the_command_line(run, tmp_path, capsys):
    main(["figures", "cache", str(run.path), *FLAGS, "--out", f"{tmp_path}/"])
    png, svg, data = (tmp_path / f"cache.{end}" for end in ("png", "svg", "csv"))
    assert capsys.readouterr().out.split() == [str(png), str(svg), str(data)]
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    with data.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["epoch"] for row in rows} == {"0", "2", "4"}
    assert {row["label"] for row in rows} <= set(LABELS.values())


def test_what_stands_out_is_bold_and_nothing_leaves_the_image(tmp_path, monkeypatch):
    cells = [["1", "2 of 5", "m" * 90, "WM" * 90, "猫" * 90, "a\n" * 90, "$x_{" * 90]]
    headings = ["epoch", "tails", "five", *[""] * 4]
    table = Table(headings, cells, {(0, 3)}, narrow=2, note="n" * 300, rows=[{"a": 1}])
    figures = []
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **_: figures.append(self) or path.touch()
    )
    page = Page([], 1, "t" * 300, table=table)
    write(page, *(tmp_path / f"x.{end}" for end in ("png", "svg", "csv")))
    texts = figures[0].axes[0].texts
    bold = [text for text in texts if text.get_fontweight() == "bold"]
    assert [text.get_text()[0] for text in bold] == ["W"]
    assert all(text.get_window_extent().x1 <= figures[0].bbox.width for text in texts)
    row = [text.get_window_extent() for text in texts if text.get_position()[1] == -1]
    assert len(row) == 7
    assert all(left.x1 < right.x0 for left, right in pairwise(row))


def test_a_run_without_a_cache_is_left_out_and_named(run, tmp_path):
    other = train(GRAPH, **TINY | {"epochs": 1, "sampler": "bernoulli"}, out=tmp_path / "other")
    drawn = draw("cache", [other, run], f"{tmp_path}/x/", **QUERY)
    assert [path.name for path in drawn.files] == ["cache.png", "cache.svg", "cache.csv"]
    (note,) = drawn.notes
    assert note.startswith(f"{other.path} is not shown: ")
    assert "its sampler is bernoulli" in note


def test_of_many_epochs_some_are_shown(run, monkeypatch):
    monkeypatch.setattr(cache, "MOST_EPOCHS", 2)
    notes = []
    (page,) = cache.pages([Log(run)], notes, **QUERY)
    assert [cells[0] for cells in page.table.cells] == ["0", "4"]
    assert {row["epoch"] for row in page.rows} == {0, 2, 4}
    assert notes == [f"{run.path}: 2 of 3 recorded epochs are shown"]


def test_several_runs_have_files_of_their_own_and_one_epoch_is_noted(run, tmp_path):
    other = train(GRAPH, **TINY | {"epochs": 1, "n1": 6}, out=tmp_path / "other")
    drawn = draw("cache", [run.path, other], f"{tmp_path}/x/", **QUERY)
    assert [path.name for path in drawn.files[::3]] == ["cache-run.png", "cache-other.png"]
    (note,) = drawn.notes
    assert "one epoch is recorded" in note
    assert "--snapshots" in note


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("cache", {}, "give relation and one of head and tail"),
        ("cache", {"head": "e99", "relation": "r0"}, "unknown entity 'e99'"),
        ("gradients", {"head": "e1"}, "head, relation and tail are for the figure cache"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(run, tmp_path, kind, asked, words):
    with pytest.raises(UserError, match=words):
        draw(kind, run.path, f"{tmp_path}/x/", **asked)
