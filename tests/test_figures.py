"""Figures: what they show of runs, and what they say of runs that lack it."""

from __future__ import annotations

import csv
import errno
import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from figure_logs import some_graph, some_run, watch
from nscaching import KnowledgeGraph, Run
from nscaching.cli.main import main
from nscaching.errors import UserError
from nscaching.paper.figures import KINDS, draw
from nscaching.paper.figures._drawing import MOST_POINTS, Line, Page, Panel, _look, evenly, write
from nscaching.paper.figures._logs import Log
from nscaching.paper.figures.curves import by_sampler, convergence, gradients, strategies
from nscaching.paper.figures.distribution import pages as distribution
from nscaching.paper.figures.sizes import chosen as chosen_ranking
from nscaching.paper.figures.sizes import pages as sizes
from nscaching.runs.escaping import shorten
from nscaching.runs.plots import plain

SHORT = {"epochs": 40, "step": 10}
ODD = "$x_{ a\tb\nc \x1b[31m 猫 <b>&amp;--> \ud800"


def logs(tmp_path, *runs, graph=None, **rest):
    """Write runs and read their logs."""
    paths = [
        some_run(tmp_path / f"run{i}", graph, **{**SHORT, **rest, **run})
        for i, run in enumerate(runs)
    ]
    return [Log(path) for path in paths]


def pages_of(kind, found):
    notes = []
    return kind(found, notes), notes


def drawn(panel):
    """Return the points of each line by its label."""
    return {line.label: [(r[line.x], r[line.y]) for r in line.rows] for line in panel.lines}


# What is shown.


def test_convergence_shows_traced_test_triples_by_time(tmp_path):
    samplers = [{"sampler": "bernoulli"}, {"sampler": "kbgan", "pretrain": "x"}, {"pretrain": "x"}]
    found = logs(tmp_path, *samplers, {})
    (page,), notes = pages_of(convergence, found)
    mrr, hits = page.panels
    assert [mrr.y_label, hits.y_label] == ["test MRR", "test Hit@10"]
    names = ["Bernoulli, scratch", "KBGAN, pretrain", "NSCaching, pretrain", "NSCaching, scratch"]
    assert list(drawn(mrr)) == names
    assert not notes
    history = [r for r in found[3].history if r.get("traced")]
    assert len(history) == 4
    # The final test of the kept parameters is no point of the curve.
    assert drawn(hits)[names[3]] == [(r["trained_seconds"], r["hits@10"]) for r in history]


def test_convergence_shows_validation_where_a_run_was_not_traced(tmp_path):
    found = logs(tmp_path, {}, {"sampler": "bernoulli", "traced": False})
    (page,), notes = pages_of(convergence, found)
    assert page.panels[0].y_label == "validation MRR"
    history = [r["mrr"] for r in found[0].history if r.get("split") == "valid"]
    assert [y for _, y in drawn(page.panels[0])["NSCaching"]] == history
    assert "run1" in notes[0]
    assert "--probe-test" in notes[0]


@pytest.mark.parametrize("kind", [convergence, sizes], ids=["convergence", "sizes"])
def test_each_page_shows_the_triples_that_its_own_runs_ranked(tmp_path, kind):
    found = logs(tmp_path, {"n1": 10}, {"traced": False})
    found += logs(tmp_path / "other", {"n1": 10}, {}, model="ComplEx")
    (first, second), notes = pages_of(kind, found)
    assert [page.panels[0].y_label for page in (first, second)] == ["validation MRR", "test MRR"]
    assert sum("TransD: validation triples are shown" in note for note in notes) == 1


def test_convergence_has_a_page_for_each_model_and_a_column_for_each_data_set(tmp_path):
    found = []
    for model in ("TransD", "ComplEx"):
        for data in ("wn18", "fb15k237"):
            found += logs(tmp_path / f"{model}{data}", {}, graph=some_graph(data), model=model)
    (first, second), _ = pages_of(convergence, found)
    assert [first.suffix, second.suffix] == ["transd", "complex"]
    assert first.columns == 2
    assert len(first.panels) == 4
    assert [panel.title for panel in first.panels] == [("WN18",), ("FB15k-237",), (), ()]
    assert {row["data"] for row in second.rows} == {"WN18", "FB15k-237"}


def test_convergence_has_one_order_of_data_sets_and_lines_whatever_the_runs_come_in(tmp_path):
    found = []
    for data in ("other", "fb15k237", "wn18"):
        settings = [{}, {"pretrain": "x"}, {"sampler": "uniform"}, {"sampler": "bernoulli"}]
        found += logs(tmp_path / data, *settings, graph=some_graph(data))
    (page,), _ = pages_of(convergence, found)
    assert [panel.title[0] for panel in page.panels[:3]] == ["WN18", "FB15k-237", "other"]
    names = ["Bernoulli, scratch", "NSCaching, pretrain", "NSCaching, scratch", "uniform, scratch"]
    assert [list(drawn(panel)) for panel in page.panels] == [names] * 6


def test_convergence_notes_a_first_epoch_that_compiled(tmp_path):
    (found,) = logs(tmp_path, {})
    first, *others = found.epochs("seconds")
    first["seconds"] = 15.0
    for record in others:
        record["seconds"] = 0.02
    _, notes = pages_of(convergence, [found])
    assert [note for note in notes if "first epoch took 15 s and others 0.02 s" in note]
    first["seconds"] = 0.5
    assert not [note for note in pages_of(convergence, [found])[1] if "compiled" in note]


@pytest.mark.parametrize(("seconds", "log_x"), [(2, False), (2000, True)])
def test_convergence_has_logarithmic_axes_where_times_differ_much(tmp_path, seconds, log_x):
    (found,) = logs(tmp_path, {})
    found.rankings("test")[-1]["trained_seconds"] = seconds
    other = logs(tmp_path / "other", {}, graph=some_graph("zoo"))
    (page,), _ = pages_of(convergence, [found, *other])
    assert [panel.log_x for panel in page.panels] == [log_x] * 4


def test_strategies_show_what_was_recorded(tmp_path):
    top = {"draw": "top"}
    found = logs(tmp_path, {"sampler": "bernoulli"}, {}, top)
    (page,), notes = pages_of(strategies, found)
    assert [panel.y_label.split("\n")[0] for panel in page.panels] == [
        "test MRR", "repeat ratio RR", "non-zero-loss ratio NZL", "changed elements CE",
    ]  # fmt: skip
    cached = ["uniform draw, importance refresh", "top draw, importance refresh"]
    assert list(drawn(page.panels[1])) == ["Bernoulli", *cached]
    assert list(drawn(page.panels[3])) == cached  # the others have no cache
    assert not notes
    ratio = [(r["epoch"], r["repeat_ratio"]) for r in found[2].history if "repeat_ratio" in r]
    assert drawn(page.panels[1])[cached[1]] == ratio
    assert len(ratio) == 2


def test_strategies_leave_out_what_no_run_recorded_and_say_so(tmp_path):
    found = logs(tmp_path, {}, {"draw": "top", "validated": False}, probed=False, validated=False)
    (page,), notes = pages_of(strategies, found)
    assert [panel.y_label.split("\n")[0] for panel in page.panels] == ["non-zero-loss ratio NZL"]
    said = "\n".join(notes)
    assert all(flag in said for flag in ("--validate-every", "--probe-repeats", "--probe-changes"))


def test_strategies_name_the_run_that_lacks_a_measure(tmp_path):
    _, notes = pages_of(strategies, logs(tmp_path, {}, {"draw": "top", "probed": False}))
    assert [note for note in notes if "run1" in note and "--probe-changes" in note]


def test_sizes_show_both_sweeps_and_the_best(tmp_path):
    pairs = [(10, 50), (50, 50), (90, 50), (50, 10), (70, 70)]
    found = logs(tmp_path, *({"n1": n1, "n2": n2} for n1, n2 in pairs))
    found[0].rankings("valid")[1]["mrr"] = 0.99  # where test MRR is not at its best
    (page,), notes = pages_of(sizes, found)
    curves1, best1, curves2, best2 = page.panels
    assert list(drawn(curves1)) == ["N1 = 10", "N1 = 50", "N1 = 90"]
    assert curves1.title == best1.title == ("N2 = 50",)
    assert list(drawn(curves2)) == ["N2 = 10", "N2 = 50"]
    # The test MRR of the epoch that validation chooses.
    valid, test = found[0].rankings("valid"), found[0].rankings("test")
    chosen = int(np.argmax([record["mrr"] for record in valid]))
    assert drawn(best1)["best"][0] == (10, test[chosen]["mrr"])
    assert [x for x, _ in drawn(best2)["best"]] == [10, 50]
    assert notes == [f"{found[4].path} is not shown: N1 = 70, N2 = 70 is of no sweep"]


def test_runs_that_differ_in_more_than_is_compared_are_told(tmp_path):
    found = logs(tmp_path, {"n1": 10, "seed": 1}, {"n1": 50, "lr": 0.1, "draw": "top"})
    said = "these runs of TransD on toy differ in {} too"
    assert said.format("--lr, --draw") in pages_of(sizes, found)[1]
    plain_runs = logs(tmp_path / "others", {"sampler": "bernoulli", "lr": 0.5})
    assert said.format("--lr, --n1") in pages_of(strategies, [*plain_runs, *found])[1]


def test_sizes_of_several_seeds_are_averaged(tmp_path):
    runs = [{"n1": n1, "seed": seed} for n1 in (10, 50) for seed in (1, 2)]
    found = logs(tmp_path, *runs, traced=False)
    (page,), notes = pages_of(sizes, found)
    curves, best = page.panels
    assert list(drawn(curves))[:2] == ["N1 = 10, seed 1", "N1 = 10, seed 2"]
    most = [max(record["mrr"] for record in log.rankings("valid")) for log in found]
    assert drawn(best)["best"] == [
        (10, pytest.approx(np.mean(most[:2]))), (50, pytest.approx(np.mean(most[2:]))),
    ]  # fmt: skip
    assert "N2" in notes[0]


def test_sizes_of_other_settings_are_lines_of_their_own(tmp_path):
    runs = [{"n1": n1, "lr": lr} for n1 in (10, 50) for lr in (0.1, 0.2)]
    found = logs(tmp_path, *runs, {"n1": 10, "lr": 0.2, "seed": 2})
    (page,), _ = pages_of(sizes, found)
    best = page.panels[1]
    assert list(drawn(best)) == ["best, lr 0.1", "best, lr 0.2"]
    assert best.legend
    chosen = [chosen_ranking(log, "test")["mrr"] for log in found]
    assert drawn(best)["best, lr 0.1"] == [(10, chosen[0]), (50, chosen[2])]
    mean = pytest.approx((chosen[1] + chosen[4]) / 2)
    assert drawn(best)["best, lr 0.2"] == [(10, mean), (50, chosen[3])]


def test_gradients_by_model(tmp_path):
    found = logs(tmp_path, {"sampler": "bernoulli"}, {}, {"model": "ComplEx"})
    (page,), _ = pages_of(gradients, found)
    assert [panel.title for panel in page.panels] == [("TransD on toy",), ("ComplEx on toy",)]
    assert all(panel.log_y for panel in page.panels)
    assert list(drawn(page.panels[0])) == ["Bernoulli", "NSCaching"]
    assert drawn(page.panels[0])["Bernoulli"][0][1] == found[0].history[0]["gradient_norm"]


def watched(tmp_path, epochs=(0, 20, 40), count=3, **rest):
    (found,) = logs(tmp_path, {"sampler": "bernoulli"})
    watch(found.path, [(f"e{i}", "next_to", f"e{i + 1}") for i in range(count)], epochs, **rest)
    return found


def test_distribution_over_epochs_and_over_triples(tmp_path):
    found = watched(tmp_path)
    (page,), notes = pages_of(distribution, [found])
    left, right = page.panels
    assert list(drawn(left)) == ["epoch 0", "epoch 20", "epoch 40"]
    assert list(drawn(right)) == [f"(e{i}, next_to, e{i + 1})" for i in range(3)]
    assert left.mark == right.mark == -4.0
    assert not notes
    # 400 entities, of which each head has two tails: 398 negatives.
    scores = [r for r in found.scores() if r["epoch"] == 40][1]
    points = drawn(right)["(e1, next_to, e2)"]
    assert points[-1] == (scores["top"][0], pytest.approx(1 / 398))
    assert points[0] == (scores["differences"][0], 1.0)
    # The best are single negatives, from one to the next of which the share is the same.
    assert points[-4:] == [
        (scores["top"][at], pytest.approx(place / 398))
        for place, at in [(2, 2), (2, 1), (1, 1), (1, 0)]
    ]
    lines = [(a, b) for a, b in pairwise(points) if b[1] > 20 / 398]
    assert len(lines) > 50
    assert all(a[0] <= b[0] and a[1] > b[1] for a, b in lines)
    assert all(a[0] <= b[0] and a[1] >= b[1] for a, b in pairwise(points))
    # Quantiles and the top are of one curve.
    whole = np.interp(0.9, np.linspace(0, 1, 201), scores["differences"])
    assert np.interp(whole, *zip(*points, strict=True)) == pytest.approx(0.1, abs=0.004)


def test_distribution_without_a_margin_and_of_heads(tmp_path):
    found = watched(tmp_path, margin=None, side="head")
    (page,), _ = pages_of(distribution, [found])
    assert page.panels[0].mark is None
    assert r"\bar{h}" in page.panels[0].x_label


def test_distribution_of_much_is_thinned_and_says_so(tmp_path):
    found = watched(tmp_path, epochs=range(0, 41, 2), count=10)
    (page,), notes = pages_of(distribution, [found])
    assert [len(panel.lines) for panel in page.panels] == [8, 8]
    assert list(drawn(page.panels[0]))[-1] == "epoch 40"
    assert len(notes) == 2
    assert len(page.rows) <= MOST_POINTS * 15  # the line that both panels show counts once


def test_long_runs_are_thinned(tmp_path):
    (found,) = logs(tmp_path, {"epochs": 1000})
    (page,), _ = pages_of(gradients, [found])
    epochs = [x for x, _ in drawn(page.panels[0])["NSCaching"]]
    assert len(epochs) == MOST_POINTS
    assert [epochs[0], epochs[-1]] == [1, 1000]
    assert sorted(set(epochs)) == epochs
    assert evenly([1, 2, 3], 3) == [1, 2, 3]


def test_lines_of_one_name_are_told_apart(tmp_path):
    same = logs(tmp_path, {"dim": 20}, {"dim": 50}, {"dim": 50, "sampler": "bernoulli"})
    assert list(by_sampler(same).values()) == [
        "NSCaching, dim 20",
        "NSCaching, dim 50",
        "Bernoulli",
    ]
    twice = logs(tmp_path / "again", {}, {})
    assert list(by_sampler(twice).values()) == ["NSCaching, run0", "NSCaching, run1"]


def test_a_run_need_not_be_on_disk(tmp_path):
    (found,) = logs(tmp_path, {})
    run = Run(found.graph, found.config, None, found.history)
    (page,), _ = pages_of(gradients, [Log(run)])
    assert len(page.rows) == 40
    with pytest.raises(UserError, match="toy-transd-nscaching: no scores"):
        distribution([Log(run)], [])


def test_eight_lines_look_different():
    looks = [_look(i) for i in range(8)]
    assert len({(look["color"], str(look["ls"])) for look in looks}) == 8
    assert len({look["color"] for look in looks}) == 7


# What is wrong.


@pytest.mark.parametrize(
    ("kind", "run", "words"),
    [
        (
            "distribution",
            {},
            "no scores of watched triples (scores.jsonl); nscaching train --watch",
        ),
        ("convergence", {"validated": False}, "no ranking while training; nscaching train --valid"),
        ("sizes", {"sampler": "bernoulli"}, "its sampler bernoulli has no cache"),
        ("sizes", {}, "no two of these runs differ in n1 alone or in n2 alone"),
    ],
)
def test_what_a_run_lacks_is_one_line(tmp_path, kind, run, words):
    (found,) = logs(tmp_path, run)
    with pytest.raises(UserError) as error:
        draw(kind, [found.path], tmp_path / "x")
    assert words in str(error.value)
    assert str(found.path) in str(error.value)
    assert not (tmp_path / "x.png").exists()


def test_a_run_that_does_not_fit_is_left_out_and_named(tmp_path):
    several = [{"sampler": "bernoulli"}, {"n1": 10}, {"n1": 50}]
    found = logs(tmp_path, *several)
    for log in found[1:]:
        watch(log.path, [("e0", "next_to", "e1")], [0, 40])
    for kind in (distribution, sizes):
        pages, notes = pages_of(kind, found)
        assert {row["run"] for page in pages for row in page.rows} == {"run1", "run2"}
        (note,) = [note for note in notes if "not shown" in note]
        assert note.startswith(f"{found[0].path} is not shown: ")


def test_gradients_before_the_first_epoch(tmp_path):
    (found,) = logs(tmp_path, {})
    found.history.clear()
    with pytest.raises(UserError, match="run0: no gradient_norm yet"):
        gradients([found], [])


@pytest.mark.parametrize(
    "damage",
    [
        "{", "[]", "1", '{"epoch": 1}', '{"head": 1}', '"differences": ["x"]', '"top": 7',
        '"side": "left"', '"margin": "wide"', '"differences": [1.0]', '"epoch": "x"',
    ],
)  # fmt: skip
def test_a_damaged_line_of_scores(tmp_path, damage):
    found = watched(tmp_path, epochs=(0, 40), count=1)
    path = found.path / "scores.jsonl"
    lines = path.read_text().splitlines()
    key = damage.partition(":")[0]
    changed = (
        json.dumps(json.loads(lines[1]) | json.loads(f"{{{damage}}}")) if key[0] == '"' else damage
    )
    path.write_text("\n".join([lines[0], changed]))
    what = "cannot read it" if damage == "{" else "not a line of scores"
    with pytest.raises(UserError, match=re.escape(f"scores.jsonl:2: {what}")):
        found.scores()


def test_scores_of_no_triples_and_of_unknown_ones(tmp_path):
    found = watched(tmp_path)
    path = found.path / "scores.jsonl"
    path.write_text(path.read_text().replace('"e1"', '"nobody"'))
    with pytest.raises(UserError, match=r"run0: scores\.jsonl: unknown entity 'nobody'"):
        distribution([found], [])
    path.write_text("")
    with pytest.raises(UserError, match=r"run0: no scores of watched triples \(scores\.jsonl\)"):
        distribution([found], [])


def test_without_validation_triples_it_is_test_triples_that_can_be_ranked(tmp_path):
    graph = some_graph()
    bare = KnowledgeGraph.from_arrays(
        splits={"train": graph.train, "test": graph.test}, entities=graph.entities,
        relations=graph.relations, name="bare",
    )  # fmt: skip
    (found,) = logs(tmp_path, {"validated": False}, graph=bare)
    with pytest.raises(UserError, match="with --probe-test test triples too"):
        convergence([found], [])


def test_unknown_kinds_and_no_runs(tmp_path):
    with pytest.raises(UserError, match="unknown figure 'pie'; known: distribution, convergence"):
        draw("pie", [tmp_path])
    with pytest.raises(UserError, match="say which runs to draw"):
        draw("sizes", [])


# What is written.


def test_every_kind_is_written_from_the_command_line(tmp_path, ask, monkeypatch):
    """The program writes PNG, SVG and CSV, names none of which it can be tricked by."""
    monkeypatch.chdir(tmp_path)
    names = [ODD.replace("\ud800", ""), *(f"e{i}" for i in range(1, 400))]
    graph = some_graph("$odd_{ 猫", names=names)
    runs = [some_run(f"$run_{{ {n1} $", graph, n1=n1, **SHORT) for n1 in (10, 50)]
    watch(runs[0], [(names[0], "next_to", "e1")], [0, 40])
    watch(runs[1], [(names[0], "next_to", "e1")], [0, 40], margin=None)
    for kind in (kind for kind in KINDS if kind != "cache"):  # test_figure_cache.py has that
        said = ask("figures", kind, *map(str, runs))
        assert said["files"] == [f"figures/{kind}.{end}" for end in ("png", "svg", "csv")]
        png, svg, data = (tmp_path / file for file in said["files"])
        assert png.read_bytes()[:4] == b"\x89PNG"
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        with data.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["run"] for row in rows} == {path.name for path in runs}
        assert {row["data"] for row in rows} == {graph.name}
        if kind == "distribution":
            assert {row["head"] for row in rows} == {names[0]}


def saved(page, folder, monkeypatch):
    """Write a page; return the figure as it was when the PNG was written."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **k: figures.append(self) or save(self, path, **k)
    )
    write(page, *(folder / f"x.{end}" for end in ("png", "svg", "csv")))
    return figures[0]


def test_nothing_is_cut_off_where_ticks_follow_the_layout(tmp_path, monkeypatch):
    # So high that a first layout makes room for ticks of two digits, and then there are three.
    points = [{"x": 1, "y": 0.0612}, {"x": 10, "y": 0.2414}]
    lines = [Line(f"N1 = {i}", points, "x", "y") for i in range(5)]
    panel = Panel("epoch", "test MRR", lines, ("N2 = 50",), legend=True)
    figure = saved(Page([panel, panel], 1, "title", panel_height=3.1), tmp_path, monkeypatch)
    assert all(axes.get_tightbbox().x0 >= 0 for axes in figure.axes)


def test_gradients_of_zero_are_seen(tmp_path, monkeypatch):
    (found,) = logs(tmp_path, {"sampler": "bernoulli"})
    for record in found.epochs("gradient_norm")[10:]:
        record["gradient_norm"] = 0.0
    (page,), _ = pages_of(gradients, [found])
    (axes,) = saved(page, tmp_path, monkeypatch).axes
    (line,) = axes.lines
    assert (line.get_ydata()[10:] == 0).all()
    assert len(line.get_ydata()) == 40
    assert axes.get_yscale() == "symlog"
    assert axes.get_ylim()[0] <= 0 < axes.get_ylim()[1]


def test_a_time_axis_has_numbers_and_long_names_are_cut(tmp_path, monkeypatch):
    found = []
    for number in range(5):
        name = f"{number} of a long name of a data set that nobody would read to the end"
        found += logs(tmp_path / str(number), {}, graph=some_graph(name))
        seconds = np.geomspace(3, 700 if number else 20, 4)
        for record, at in zip(found[-1].rankings("test"), seconds, strict=True):
            record["trained_seconds"] = float(at)
    (page,), _ = pages_of(convergence, found)
    figure = saved(page, tmp_path, monkeypatch)
    assert [axes.get_xscale() for axes in figure.axes[:5]] == ["log"] * 5
    width = figure.get_figwidth() * figure.dpi
    for axes in figure.axes:
        labels = axes.get_xticklabels(which="both")
        low, high = axes.get_xlim()
        shown = [t for t in labels if t.get_text() and low <= t.get_position()[0] <= high]
        places = sorted(t.get_window_extent().x0 for t in shown)
        ends = sorted(t.get_window_extent().x1 for t in shown)
        assert len(shown) >= 2
        assert all(end <= place for end, place in zip(ends[:-1], places[1:], strict=True))
        assert 0 <= axes.get_tightbbox().x0 < axes.get_tightbbox().x1 <= width
    for axes, other in pairwise(figure.axes[:5]):
        assert axes.title.get_window_extent().x1 < other.title.get_window_extent().x0


def test_the_margin_is_a_line_that_the_legend_names(tmp_path, monkeypatch):
    (page,), _ = pages_of(distribution, [watched(tmp_path)])
    figure = saved(page, tmp_path, monkeypatch)
    for axes in figure.axes:
        *_, line = axes.lines
        assert (list(line.get_xdata()), line.get_linestyle()) == ([-4.0, -4.0], "--")
        *_, label = axes.get_legend().get_texts()
        assert label.get_text() == "D = −margin = −4"


def test_files_come_out_the_same_and_are_not_overwritten(tmp_path, capsys):
    run = some_run(tmp_path / "run", **SHORT)
    first, again = (draw("gradients", [run], tmp_path / name).files for name in ("a", "b.c"))
    assert [path.name for path in again] == ["b.c.png", "b.c.svg", "b.c.csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    first[0].unlink()
    first[2].write_text("mine")
    with pytest.raises(UserError, match=r"a\.svg exists already; .*overwrite=True"):
        draw("gradients", [run], tmp_path / "a.png")
    assert first[2].read_text() == "mine"
    assert not first[0].exists()
    main(["figures", "gradients", str(run), "--out", str(tmp_path / "a"), "--overwrite"])
    assert capsys.readouterr().out.split() == [str(path) for path in first]
    assert first[2].read_bytes() == again[2].read_bytes()
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(UserError, match=r"link\.csv exists already"):
        draw("gradients", run, tmp_path / "link")
    assert not (tmp_path / "elsewhere.csv").exists()


def test_a_full_disk_leaves_the_files_as_they_were(tmp_path, monkeypatch):
    run = some_run(tmp_path / "run", **SHORT)
    files = draw("gradients", run, f"{tmp_path}/out/").files
    before = [path.read_bytes() for path in files]

    def half(self, path, **_):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(UserError, match=r"cannot write .*gradients\.png: No space left on device"):
        draw("gradients", run, f"{tmp_path}/out/", overwrite=True)
    assert [path.read_bytes() for path in files] == before
    assert sorted((tmp_path / "out").iterdir()) == sorted(files)


def test_a_run_that_is_given_twice_is_drawn_once(tmp_path):
    run = some_run(tmp_path / "run", **SHORT)
    drawing = draw("gradients", [run, tmp_path / "." / "run"], tmp_path / "once")
    assert drawing.notes == [f"{run} is given twice, and drawn once"]
    alone = draw("gradients", run, tmp_path / "alone")  # one run need not be a list
    assert [p.read_bytes() for p in drawing.files] == [p.read_bytes() for p in alone.files]


def test_data_of_one_name_are_not_one_data_set(tmp_path):
    graphs = [some_graph("kg", entities=size) for size in (400, 300)]
    runs = [some_run(tmp_path / f"run{i}", g, **SHORT) for i, g in enumerate(graphs)]
    drawing = draw("gradients", runs, tmp_path / "x")
    with drawing.files[2].open(encoding="utf-8", newline="") as file:
        found = {row["data"] for row in csv.DictReader(file)}
    assert found == {f"kg [{graph.fingerprint[:6]}]" for graph in graphs}


def test_pages_have_files_of_their_own_on_any_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("nscaching.paper.figures._drawing.write", lambda page, *files: None)
    runs = [some_run(tmp_path / data, some_graph(data), **SHORT) for data in ("kg", "KG")]
    files = draw("strategies", runs, f"{tmp_path}/new/").files
    assert [p.stem for p in files[::3]] == ["strategies-transd-kg", "strategies-transd-kg-2"]


def test_a_page_for_each_model_has_files_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("nscaching.paper.figures._drawing.write", lambda page, *files: None)
    found = [some_run(tmp_path / m, model=m, **SHORT) for m in ("TransD", "ComplEx")]
    steps = []
    files = draw(
        "convergence", found, f"{tmp_path}/new/", progress=lambda *at: steps.append(at)
    ).files
    assert [path.stem for path in files[::3]] == ["convergence-transd", "convergence-complex"]
    assert all(path.parent == tmp_path / "new" for path in files)
    assert steps == [(0, 3), (1, 3), (2, 4), (3, 4)]


def test_names_are_plain_text():
    assert plain("_$a$") == r" _\$a\$"
    assert plain("a\nb\x1b\ud800") == r"a\nb\x1b\ud800"
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("abc", 3) == "abc"
