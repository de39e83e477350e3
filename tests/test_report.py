"""The report is one safe page that says what the run did, whatever the names and the run."""

from __future__ import annotations

import dataclasses
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from helpers import TINY, Hearing, graph_of, random_graph
from nscaching import KnowledgeGraph, ProbeConfig, Run, train
from nscaching.cli.main import main
from nscaching.data.graph import SPLITS
from nscaching.data.index import Side
from nscaching.errors import Stopped, UserError
from nscaching.evaluation import ranking as evaluation
from nscaching.probes.files import Snapshots
from nscaching.runs.report import charts, markup, page
from nscaching.runs.report.markup import POLICY
from nscaching.runs.report.page import render, varied

VOID = {"meta", "wbr", "line", "rect", "circle", "polyline"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</style></title><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "&lt;b&gt; & &amp;",
    "turned \u202e around \u2066",
    "tab\there\nand\x00\x1b[31mred\x85",
    "long " * 200_000,
    "   ",
    "https://example.org/e#1",
    "שלום 👩‍👧",
    "]]> --> <!--",
]


class Page(HTMLParser):
    """Reads a page as a browser would: tags, attributes, the text of each section."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), [], [], []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    @property
    def words(self):
        return " ".join("".join(self.text).split())


def check(content):
    """Return the parsed page if nothing in it runs, loads or leads anywhere."""
    found = Page(content)
    known = "html head meta title style body header main footer section article figure figcaption"
    known += " h1 h2 h3 h4 p b i span small bdi wbr code pre output div dl dt dd ul li details"
    known += " summary table thead tbody tr th td svg text line rect circle polyline g"
    assert found.tags <= set(known.split())
    names = {name for name, _ in found.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "href", "xlink:href", "action", "srcset", "data"}
    assert ("content", POLICY) in found.attributes
    style = content[content.index("<style>") : content.index("</style>")]
    assert not re.search(r"url\(|@import|https?:|//", style)
    assert content.isprintable() or not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", content)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\u2028\u2029]", content)
    return found


TINY = TINY | {"kernels": "reference"}  # a report looks the same, whoever trained


def tiny(graph=None, **settings):
    return train(graph or random_graph(), **{**TINY, **settings})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "saved"
    return train(random_graph(), out=path, **{**TINY, "epochs": 3})


# What it says.


def test_it_says_what_the_run_found(saved):
    content = (saved.path / "report.html").read_text(encoding="utf-8")
    found = check(content)
    result = saved.result("test")
    assert f"<dd>{result['mrr']:.3f}</dd>" in content
    assert "TransE with nscaching on graph" in found.words
    assert f"epoch {saved.best_epoch} of 3, the best by validation MRR" in found.words
    evaluated = saved.evaluate("test")
    for part in ("by_class", "by_relation"):
        for name, values in evaluated[part].items():
            row = content[content.index(f"{name} <small>" if part == "by_class" else name) :]
            row = row[: row.index("</tr>")]
            assert f"<td>{values['triples']}</td>" in row
            assert f"</span>{values['mrr']:.3f}</td>" in row
            for side in ("head", "tail"):
                assert f"<td>{values['by_side'][side]['mrr']:.3f}</td>" in row
    for section in ("Training", "Results by relation", "Example", "The cache", "Data", "Settings"):
        assert f"<h2>{section}" in content
    assert "nscaching train graph --model TransE --sampler nscaching" in found.words
    row = '--batch-size</code></th><td class="value">16</td><td class="value">512</td>'
    assert row in content  # then the default
    assert torch.__version__ in found.words


def test_the_ranking_of_training_is_not_made_again(monkeypatch):
    run = tiny()
    expected = render(run)
    monkeypatch.setattr("nscaching.runs.report.page.rank", None)
    assert render(run) == expected
    run.test_ranks = None
    with pytest.raises(TypeError):
        render(run)


def test_a_loaded_run_has_the_same_report(saved):
    loaded = Run.load(saved.path, "cpu")
    assert loaded.test_ranks is None
    assert render(loaded) == (saved.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("model", ["TransE", "TransD", "TransR", "ComplEx", "RESCAL", "ManifoldE"])
@pytest.mark.parametrize("sampler", ["nscaching", "none"])
def test_models_of_each_family(model, sampler):
    run = tiny(model=model, sampler=sampler)
    found = check(render(run))
    assert f"{model} with {sampler}" in found.words
    assert ("The cache" in found.words) == (sampler == "nscaching")


def test_a_generator_shows_its_figures():
    found = check(render(tiny(sampler="kbgan")))
    for figure in ("Generator’s loss", "Generator’s reward", "Generator’s entropy"):
        assert figure in found.words


def test_figures_that_nobody_knows_are_drawn_too():
    run = tiny(epochs=1)
    for record in run.history:
        if "split" not in record:
            record |= {"<b>own": 0.5, "text": "x", "changed_elements": float("nan")}
    found = check(render(run))
    assert "<b>own" in found.words
    assert "Changed elements" not in found.words


@pytest.mark.parametrize("left", [("train",), ("train", "valid"), ("train", "test")])
def test_splits_that_are_not_there(left):
    full = random_graph()
    graph = graph_of(*(full.split(s) if s in left else () for s in SPLITS), entities=12)
    run = tiny(graph)
    found = check(render(run))
    held_out = {"test": "test", "valid": "validation"}.get(left[-1])
    assert ("Filtered" in found.words) == bool(held_out)
    if held_out:
        split = left[-1]
        assert f"Of the 8 {held_out} triples." in found.words
        assert f"{run.evaluate(split)['mrr']:.3f}" in found.words
    else:
        assert "nothing was ranked" in found.words
        assert "Example" not in found.words


def test_a_traced_test_ranking_is_a_line():
    run = tiny(epochs=1)
    assert render(run).count('class="line c2"') == 0
    final = run.result("test")
    run.history.insert(0, final | {"epoch": 0, "traced": True, "mrr": 0.125})
    content = render(run)
    assert content.count('class="line c2"') == 1
    assert "epoch 0: test 0.1250" in content
    assert f"<dd>{final['mrr']:.3f}</dd>" in content


def test_examples_are_right_and_wrong_and_their_ranks_are_the_evaluations():
    run = tiny(random_graph(entities=30, train=200, test=60), epochs=10, dim=8)
    content = render(run)
    cards = re.findall(r"<article><h3>(.*?)</h3>\n<ul class=\"answers\">(.*?)</ul>", content, re.S)
    assert len(cards) == 6
    ranks = np.stack([run.test_ranks[side].resolve("realistic") for side in Side])
    asked = []
    for title, answers in cards:
        head, relation, tail = re.sub("<.*?>", "", title).split(")")[0][1:].split(", ")
        (right,) = re.findall(r'class="right"><b>(.*?)</b><span><bdi>(.*?)</bdi>', answers)
        known = re.findall(r'class="known"><b>–</b><span><bdi>(.*?)</bdi>', answers)
        side = Side.HEAD if head == "?" else Side.TAIL
        triple = [right[1] if name == "?" else name for name in (head, relation, tail)]
        ids = [int(name[1:]) for name in triple]
        row = run.graph.test.tolist().index(ids)
        rank = ranks[list(Side).index(side), row]
        assert markup.number(rank) == right[0]
        every = np.concatenate([run.graph.split(split) for split in SPLITS]).tolist()
        for name in known:
            changed = [name if part == "?" else part for part in (head, relation, tail)]
            assert [int(name[1:]) for name in changed] in every
        asked.append(rank == 1)
    assert asked == [True] * 3 + [False] * 3
    # That half of them are right is a choice, and said to be one.
    words = check(content).words
    assert "up to 3 that have the right answer first, then up to 3 that do not" in words
    assert "Some questions" not in words


def snapshot(folder, epoch):
    """Return the file of a snapshot in a copy of a run folder."""
    (folder / "snapshots").mkdir(exist_ok=True)
    return folder / "snapshots" / f"cache-{epoch:06d}.safetensors"


def copied(run, folder):
    return Run.load(shutil.copytree(run.path, folder / "copy"), "cpu")


def test_the_start_of_the_cache_is_shown_where_it_was_recorded(saved, tmp_path):
    run = copied(saved, tmp_path)
    assert "The start was not recorded" in render(run)
    start = snapshot(run.path, 0)
    save_file({k: torch.full_like(v, 7) for k, v in run.sampler_state.items()}, start)
    content = render(Run.load(run.path, "cpu"))
    assert "The start was not recorded" not in content
    assert content.count("<h4>before</h4>") == content.count("<h4>after epoch 3</h4>") > 1
    before = re.findall(r"<h4>before</h4>(.*?)</ul>", content, re.S)
    assert all(re.findall("<bdi>(.*?)</bdi>", part) == ["e7"] for part in before)


def test_a_training_shows_its_own_start(tmp_path):
    probes = ProbeConfig(snapshots=(0,))
    run = train(random_graph(), **TINY, probes=probes, out=tmp_path / "run")
    assert "<h4>before</h4>" in (run.path / "report.html").read_text(encoding="utf-8")
    assert "<h4>before</h4>" in render(train(random_graph(), **TINY, probes=probes))


def test_why_a_cache_is_not_shown(saved, tmp_path):
    run = copied(saved, tmp_path)
    start = snapshot(run.path, 0)
    others = {"head_cache": torch.zeros(2, 2), "tail_cache": torch.zeros(2, 2)}
    for damage in (b"not tensors", b""):
        start.write_bytes(damage)
        run.snapshots = Snapshots(run.path)
        words = check(render(run)).words
        assert "cache-000000.safetensors: cannot read it" in words
        assert "not recorded" not in words
    save_file(others, start)
    found = check(render(run))
    assert "its cache of epoch 0 does not fit the data" in found.words
    assert "after epoch 3" in found.words
    start.unlink()
    run.snapshots, run.sampler_state = Snapshots(run.path), others
    words = check(render(run)).words
    assert "The cache The start was not recorded" in words
    assert "Not shown: copy: its cache of epoch 3 does not fit the data." in words
    run.sampler_state = {}
    assert "The cache" not in check(render(run)).words


def test_a_cached_answer_is_marked_whatever_split_knows_it():
    rows = {"train": [(0, 0, 1)], "valid": [(0, 0, 2)], "test": [(0, 0, 3)]}
    run = train(graph_of(entities=6, **rows), **TINY)
    for rows in run.sampler_state.values():
        rows.copy_(torch.arange(rows.shape[1]) % 6)
    (card,) = (part for part in render(run).split("<article>") if "<h4>after epoch" in part)
    assert "True: <bdi>e1</bdi>, <bdi>e2</bdi>, <bdi>e3</bdi>" in card
    marked = re.findall(r"<bdi>(e\d)</bdi> <span class=\"badge *\">known", card)
    assert sorted(marked) == ["e1", "e2", "e3"]


def test_fewer_epochs_than_were_asked_for_are_said(saved):
    run = Run.load(saved.path, "cpu")
    assert "asked for" not in render(run)
    run.config = dataclasses.replace(run.config, epochs=1000)
    words = check(render(run)).words
    assert "1,000 epochs were asked for" in words
    assert "patience" not in words.partition("1,000 epochs")[0]


def test_a_run_whose_patience_ended_says_so(tmp_path):
    settings = TINY | {"epochs": 50, "patience": 1, "lr": 1e-9, "validate_every": 1}
    run = train(random_graph(), out=tmp_path / "run", **settings)
    words = check(render(run)).words
    assert "ended by --patience 1: 50 epochs were asked for" in words
    assert "Not finished" not in words


def test_a_stopped_run_says_so_and_shows_what_is_there(tmp_path):
    path, epochs = tmp_path / "a <run>", []
    settings = TINY | {"epochs": 9, "validate_every": 2}
    with pytest.raises(Stopped):
        train(
            random_graph(),
            **settings,
            out=path,
            probes=ProbeConfig(snapshots=(0, 2)),
            listener=Hearing(
                record=lambda record: epochs.append(record["epoch"]), stop=lambda: 4 in epochs
            ),
        )
    run = Run.load(path, "cpu")
    content = render(run)
    words = check(content).words
    assert "Not finished: 4 of 9 epochs are done. If training was stopped" in words
    assert f"nscaching train --resume '{path}' resumes" in words
    assert "asked for" not in words
    # All figures are of the test triples, which training has not ranked yet.
    mrr = f"{run.evaluate('test')['mrr']:.3f}"
    assert f"· MRR {mrr}</title>" in content
    assert f"<dd>{mrr}</dd>" in content
    assert f"</span>{mrr}</td>" in content
    assert f"Filtered test ranking of epoch {run.best_epoch} of 4" in words
    assert "Each test triple asks" in words
    assert content.count("<h4>before</h4>") == content.count("<h4>after epoch 2</h4>") > 1


def test_all_results_are_of_one_ranking_whatever_training_ranked(tmp_path):
    full = random_graph()
    graph = graph_of(full.train, full.valid, (), entities=12)
    run = train(graph, **TINY | {"validate_every": 0}, out=tmp_path / "run")
    content = render(run)
    words = check(content).words
    mrr = f"{run.evaluate('valid')['mrr']:.3f}"
    assert f"· MRR {mrr}</title>" in content
    assert f"<dd>{mrr}</dd>" in content
    assert f"Filtered validation ranking of epoch {run.best_epoch} of" in words
    assert "nothing was ranked" not in words


def test_a_lost_history_is_no_reason_to_guess(saved, tmp_path):
    run = copied(saved, tmp_path)
    run.history = []
    words = check(render(run)).words
    assert f"ranking of epoch {run.best_epoch} · metrics.jsonl holds 0 epochs · on cpu" in words
    assert f"<dd>{saved.result('test')['mrr']:.3f}</dd>" in render(run)


# Names.


def test_hostile_names_are_only_ever_text(tmp_path):
    n, random = len(HOSTILE), np.random.default_rng(0)
    chosen = random.choice(n * n * n, size=150, replace=False)
    triples = np.stack(np.unravel_index(chosen, (n, n, n)), axis=1)
    splits = dict(zip(SPLITS, np.split(triples, [90, 100]), strict=True))
    labels = {HOSTILE[0]: HOSTILE[1], HOSTILE[3]: "</bdi></h1><iframe>"}
    graph = KnowledgeGraph.from_arrays(
        HOSTILE, HOSTILE[::-1], splits, name=HOSTILE[1], labels=labels, notes=HOSTILE
    )
    run = tiny(graph)
    run.record |= {"device": HOSTILE[0], "<i>": HOSTILE[1], "kernels": HOSTILE[2]}
    run.path = tmp_path / "<img src=y>"
    found = check(render(run))
    assert {"script", "img", "iframe"} & found.tags == set()
    for shown in ("<script>alert(1)</script>", "&lt;b&gt; & &amp;", "https://example.org/e#1"):
        assert shown in found.words
    for shown in ("⟨U+202E⟩ around ⟨U+2066⟩", "tab␉here␊and␀␛[31mred⟨U+0085⟩"):
        assert shown in found.words
    assert "⟨empty⟩" in found.words
    assert len(render(run)) < 300_000
    render(run).encode()


def test_a_name_is_shortened_in_its_middle():
    assert markup.text("a" * 80) == "a" * 80
    shown = markup.text("start" + "x" * 1_000_000 + "end")
    assert len(shown) == markup.MOST
    assert shown.startswith("start")
    assert shown.endswith("end")
    assert "…" in shown


def test_half_a_character_is_shown_as_its_number():
    assert markup.text("lone \udc80") == "lone ⟨U+DC80⟩"


def test_numbers_as_people_read_them():
    numbers = {
        -0.0: "0",
        12345: "12,345",
        -2: "−2",
        0.25: "0.2500",
        3.14159: "3.142",
        123.45: "123.5",
    }
    numbers |= {1e-7: "1.00e−07", 1e20: "1.00e+20", float("nan"): "–", -12.345: "−12.35"}
    for value, shown in numbers.items():
        assert markup.number(value) == shown


# Charts.


def drawn(title, points, last):
    """Return a chart of one line as SVG."""
    found = charts.chart([charts.Series(title, points)], last)
    return str(page.templates().get_template("macros.html").module.chart(found, title))


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 0), (0, 0.37), (-3.2, 8), (0, 1234567), (0, 1e-9), (-5, 0)]
)
def test_ticks_are_round_and_hold_the_range(low, high):
    found = charts.ticks(low, high)
    assert 2 <= len(found) <= 6
    assert found[0] <= low
    assert found[-1] >= high
    steps = np.diff(found)
    assert np.allclose(steps, steps[0])
    assert f"{steps[0]:.3e}"[:4] in ("1.00", "2.00", "2.50", "5.00")


@pytest.mark.parametrize("last", [1, 2, 3, 7, 60, 200, 1000, 12345])
def test_ticks_of_epochs_are_whole(last):
    found = charts.ticks(0, last, 6, whole=True)
    assert all(tick == int(tick) for tick in found)
    assert found[-1] >= last


def test_long_histories_are_thinned_and_spikes_stay():
    points = [(float(epoch), 1.0) for epoch in range(1, 20_001)]
    points[12_345] = (12_346.0, 9.0)
    kept = charts.thin(points)
    assert len(kept) <= charts.MOST_POINTS
    assert (12_346.0, 9.0) in kept
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert kept == sorted(kept)
    drawing = drawn("x", points, 20_000)
    assert drawing.count("<title>") <= charts.MOST_HOVERS
    assert len(drawing) < 30_000


@pytest.mark.parametrize(
    "points", [[(1, 0.0)], [(1, 1e-320), (2, 0)], [(1, -1e29), (2, 1e29)], [(1, 5), (2, np.inf)]]
)
def test_charts_of_odd_figures_stay_in_their_frame(points):
    drawing = drawn("odd", points, 2)
    places = re.findall(r'\b(x|y|cx|cy|x1|x2|y1|y2)="([^"]*)"', drawing)
    assert len(places) > 10
    for name, value in places:
        limit = charts.WIDTH if "x" in name else charts.HEIGHT
        assert 0 <= float(value) <= limit


def test_nothing_to_draw():
    assert charts.chart([charts.Series("x", [(1, np.nan)])], 1) == {}
    assert charts.chart([], 1) == {}


def test_different_relations_go_first():
    assert varied([9, 8, 7, 6], [1, 1, 2, 1], 3) == [9, 7, 8]
    assert varied([9], [1], 3) == [9]
    assert varied([], [], 3) == []


def test_a_thousand_relations_are_listed_and_the_rest_counted(monkeypatch):
    n = 60
    triples = [(0, r, 1) for r in range(n)]
    graph = graph_of([(1, r, 0) for r in range(n)], (), triples, entities=8)
    monkeypatch.setattr("nscaching.runs.report.page.MOST_RELATIONS", 40)
    content = render(tiny(graph, epochs=1))
    assert "<summary>15 more relations</summary>" in content
    assert "The 20 smallest are left out here." in content


# Files.


def test_the_verb(saved, ask, capsys, tmp_path):
    file = tmp_path / "new" / "report.html"
    said = ask("report", str(saved.path), "--out", str(file), "--device", "cpu")
    assert said == {"run": str(saved.path), "report": str(file)}
    check(file.read_text(encoding="utf-8"))
    copy = shutil.copytree(saved.path, tmp_path / "copy")
    for path in (file, copy / "report.html"):
        path.write_text("mine")
    for words in ([], ["--out", str(file)]):
        with pytest.raises(SystemExit) as stop:
            main(["report", str(copy), "--device", "cpu", *words])
        assert stop.value.code == 2
        assert "report.html exists already; choose another --out" in capsys.readouterr().err
    assert file.read_text() == (copy / "report.html").read_text() == "mine"
    main(["report", str(saved.path), "--out", str(file), "--device", "cpu", "--overwrite"])
    assert capsys.readouterr().out == f"report: {file}\n"
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]


def test_the_report_of_a_run_is_made_anew(saved, tmp_path, monkeypatch, capsys):
    path = shutil.copytree(saved.path, tmp_path / "copy")
    files = {file.name for file in path.iterdir()}
    page = path / "report.html"
    before = page.read_text(encoding="utf-8")
    page.write_text(before.replace("TransE", "an older name"), encoding="utf-8")
    main(["report", str(path), "--device", "cpu"])
    assert capsys.readouterr().out == f"report: {page}\n"
    assert page.read_text(encoding="utf-8").count("TransE") == before.count("TransE")
    assert {file.name for file in path.iterdir()} == files
    monkeypatch.chdir(path)
    main(["report", ".", "--out", "../copy/report.html", "--device", "cpu"])  # the same file


def test_no_other_file_is_taken_for_the_report_of_a_run(saved, tmp_path):
    run = copied(saved, tmp_path)
    page = run.path / "report.html"
    whole = page.read_bytes()
    for others in (b"", b"mine", whole[:-1], whole[1:], whole + b"<!-- mine -->"):
        page.write_bytes(others)
        with pytest.raises(UserError, match=r"report\.html exists already; choose another path"):
            run.report()
        assert page.read_bytes() == others
    page.unlink()
    page.symlink_to(saved.path / "report.html")
    # Nor is a report that stands elsewhere, which may be of another run.
    shutil.copy(saved.path / "report.html", tmp_path)
    for where in ("", tmp_path / "report.html", saved.path / "report.html"):
        with pytest.raises(UserError, match=r"report\.html exists already; choose another path"):
            run.report(where)
    assert page.is_symlink()
    run.report(overwrite=True)
    assert not page.is_symlink()


def test_an_older_report_is_kept_where_a_new_one_cannot_be_written(saved, tmp_path, monkeypatch):
    run = copied(saved, tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in run.path.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device"):
        run.report()
    assert {file.name: file.stat().st_mtime_ns for file in run.path.iterdir()} == before


def test_where_a_report_cannot_be(saved, tmp_path):
    with pytest.raises(UserError, match="is a folder; path names a file"):
        saved.report(tmp_path, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*report.html: "):
        saved.report(tmp_path / "file" / "report.html")
    with pytest.raises(UserError, match="the run is not saved"):
        tiny(epochs=1).report()


@pytest.mark.parametrize("error", [RuntimeError("oops"), OSError("disk")])
def test_a_report_that_fails_costs_no_run(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    run = tiny(epochs=1)

    monkeypatch.setattr(page, "render", fail)
    with pytest.warns(UserWarning, match="report.html was not written"):
        run.save(tmp_path / "run")
    assert not list((tmp_path / "run").glob("report*"))
    monkeypatch.undo()
    loaded = Run.load(tmp_path / "run", "cpu")
    assert loaded.evaluate()["mrr"] == run.result("test")["mrr"]
    check(loaded.report().read_text(encoding="utf-8"))


def test_a_breakdown_is_the_evaluation():
    run = tiny()
    parts = evaluation.breakdown(run.graph, run.graph.test, run.test_ranks)
    assert parts.items() <= run.evaluate("test").items()
    assert parts["mrr"] == run.result("test")["mrr"]
