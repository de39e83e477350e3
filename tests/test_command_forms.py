"""What every verb can do: CSV, silence, advice; and settings that do not go together."""

from __future__ import annotations

import csv
import io
import shlex
import sys

import pytest

from nscaching import KnowledgeGraph
from nscaching.cli.main import main
from nscaching.cli.rows import flattened, print_csv
from nscaching.config import read_toml
from nscaching.runs.rising import still_rising

TINY = shlex.split("--epochs 4 --dim 8 --threads 1 --lr 0.2 --seed 1 --validate-every 1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a graph of 14 entities with odd names, and train on it."""
    folder = tmp_path_factory.mktemp("forms")
    names = ["a, b", 'say "hi"', "tab\u0085", *(f"e{i}" for i in range(11))]
    pairs = [(i, j) for i in range(14) for j in range(14) if (3 * i + j) % 4 < 2]
    with (folder / "graph.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["head", "relation", "tail"])
        for i, j in pairs:
            writer.writerow([names[i].strip(), f"r{(i + j) % 3}", names[j].strip()])
    main(["train", str(folder / "graph.csv"), *TINY, "--out", str(folder / "run")])
    return folder


@pytest.fixture
def call(capsys, folder, monkeypatch):
    """Return a function that runs the command line in the folder: (stdout, stderr)."""
    monkeypatch.chdir(folder)

    def run(*words):
        capsys.readouterr()
        main(list(words))
        return capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "columns", "lines"),
    [
        ("predict run --head e1 --relation r1 --top 3", "head relation tail rank score", 3),
        ("predict run --head e1 --relation r1 --tail e2", "head relation tail score", 1),
        ("neighbours run e1 --top 3", "entity rank name cosine", 3),
        ("evaluate run --typed", "part name mrr hits@10", None),
        ("evaluate run --task relations", "part name mrr", None),
        ("evaluate run --task calibration", "from to triples probability share", None),
        ("classify run", "part name accuracy threshold", None),
        ("explain run --head e1 --relation r1 --tail e2 --top 2", "kind influence", None),
        ("entities graph.csv e1", "name label triples", 2),
        ("relations run", "name triples heads tails class", 3),
        ("audit graph.csv", "of name split triples mrr", None),
        ("compare run", "run data model sampler test_mrr valid_mrr", 1),
        ("datasets", "name entities train", None),
        ("presets", "name data model dim", None),
    ],
)
def test_every_table_is_csv_too(call, words, columns, lines):
    printed = call(*words.split(), "--csv").out
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert set(columns.split()) <= set(rows[0])
    assert len(rows) == (lines or len(rows)) > 0
    with pytest.raises(SystemExit) as stop:
        call(*words.split(), "--csv", "--json")
    assert stop.value.code == 2


def test_csv_says_what_json_says(call, folder):
    rows = list(csv.DictReader(io.StringIO(call("entities", "graph.csv", "--csv").out)))
    graph = KnowledgeGraph.load(folder / "graph.csv")
    assert {row["name"] for row in rows} == set(graph.entities)


def test_rows_of_csv_are_flat(capsys, monkeypatch):
    row = {
        "test": {"mrr": 1 / 3, "by": {"head": 1}},
        "kinds": ["a", "b"],
        "x": [{"y": 1}],
        "n": None,
    }
    flat = flattened(row)
    assert flat == {
        "test_mrr": 1 / 3, "test_by_head": 1, "kinds": "a; b", "x": '[{"y": 1}]', "n": None,
    }  # fmt: skip
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_csv([{"name": "\x1b[31mred"}, {"other": 1.5}])
    assert capsys.readouterr().out == "name,other\n\\x1b[31mred,\n,1.5\n"
    print_csv([])
    assert capsys.readouterr().out == ""


def test_quiet_leaves_results_and_errors(call, capsys):
    out, err = call("audit", "graph.csv")
    assert "14 entities" in err
    assert call("audit", "graph.csv", "--quiet") == (out, "")
    with pytest.raises(SystemExit):
        call("--quiet", "audit", "nowhere")
    with pytest.raises(SystemExit):
        call("audit", "nowhere", "--quiet")
    assert capsys.readouterr().err.startswith("nscaching: unknown data set 'nowhere'")


def curve(*mrr, every=1):
    epochs = [{"epoch": e} for e in range(1, every * len(mrr) + 1)]
    valid = [{"epoch": every * (i + 1), "split": "valid", "mrr": m} for i, m in enumerate(mrr)]
    return epochs + valid


@pytest.mark.parametrize(
    ("history", "epochs", "rising"),
    [
        (curve(0.1, 0.2, 0.3, 0.4), 4, True),
        (curve(0.1, 0.2, 0.3, 0.4, every=5), 20, True),
        (curve(0.1, 0.3, 0.4, 0.402), 4, False),
        (curve(0.1, 0.2, 0.4, 0.3), 4, False),
        (curve(0.1, 0.2, 0.3, 0.4), 9, False),  # stopped, by patience or by hand
        (curve(0.4), 1, False),
        ([], 4, False),
    ],
)
def test_a_curve_that_still_rises(history, epochs, rising):
    assert still_rising(history, epochs) is rising


def test_a_training_that_should_be_longer_says_so(call, folder):
    words = ["train", "world", "--epochs", "4", "--dim", "8", "--sampler", "uniform", "--model"]
    printed = call(*words, "DistMult", "--validate-every", "1", "--out", "short").out
    advice = "validation MRR was still rising at the end: train longer, such as --epochs 8"
    report = (folder / "short" / "report.html").read_text()
    assert advice in printed
    assert advice in report
    assert "Non-zero loss" not in report  # of a logistic loss, which is never zero


def test_settings_chosen_for_one_model_are_not_those_of_another(call, folder):
    words = ["train", "graph.csv", "--config", "run/config.toml", "--model", "TransE"]
    err = call(*words, "--out", "other").err
    assert "is of ComplEx: what was chosen for ComplEx is chosen anew" in err
    found = read_toml(folder / "other" / "config.toml")
    assert (found["optimizer"], found["penalty_norm"], found["model"]) == ("adam", "l2", "TransE")
    kept = {"dim": 8, "lr": 0.2, "epochs": 4, "seed": 1}  # what the first training was told
    assert {name: found[name] for name in kept} == kept


@pytest.mark.parametrize("words", [["--plain"], ["--preset", "wn18rr-transe"]])
def test_a_graph_smaller_than_the_cache_takes_a_smaller_one(call, words):
    err = call("train", "graph.csv", *words, *TINY, "--dry-run").err
    assert "note: graph has 14 entities: --n1 7, not 50\n" in err


def test_a_cache_that_nobody_left_out_is_not_blamed(call, capsys):
    with pytest.raises(SystemExit):
        call("train", "graph.csv", "--snapshots", "1", *TINY, "--out", "x")
    reason = "the softmax is over all 14 entities, without a cache; --n1 7 keeps one"
    assert capsys.readouterr().err.endswith(f"--snapshots: {reason}\n")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--n1 5 --sampler uniform", "--sampler uniform"),
        ("--temperature 2 --objective softmax --n1 5", "--refresh top"),
        ("--generator TransE --sampler nscaching", "--sampler nscaching"),
        ("--norm 1", "--model ComplEx"),
        ("--side uniform --sampler uniform", "--sampler uniform"),
        ("--margin 3 --objective softmax", "--objective softmax"),
    ],
)
def test_a_flag_without_effect_says_why(call, flags, why):
    err = call("train", "graph.csv", *flags.split(), *TINY, "--dry-run").err
    assert f"note: {flags.split()[0]} has no effect with {why}\n" in err
