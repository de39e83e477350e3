"""The command line as a user meets it: verbs, flags, files, tables and JSON."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nscaching import KnowledgeGraph, Run, TrainConfig, __version__, settings_for
from nscaching.cli import main as cli
from nscaching.cli.main import VERBS, main
from nscaching.cli.verbs.compare import WAYS
from nscaching.config import write_toml
from nscaching.data import datasets
from nscaching.errors import UserError, as_flag
from nscaching.models import MODELS
from nscaching.runs.escaping import visible
from nscaching.runs.settings import read_settings
from nscaching.samplers import SAMPLERS

TINY = shlex.split(
    "--model TransE --epochs 2 --dim 4 --n1 4 --n2 4 --threads 1 --validate-every 1 --lr 0.1"
)
ODD = [
    "[bold]x[/bold]",
    'say "hi"',
    "$5 and $6",
    "tab\there",
    "👩‍👧 🙂",
    "שלום עולם",
    "{x} %s \\n",
    ":smile: [/]",
    "a very long name " * 12 + "that ends here",
]
NAMES = [name.strip() for name in ODD] + ["a", "b", "c", "d"]
RELATIONS = ["[link=x]r", "$r$ 🙂"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write a CSV file of odd names."""
    path = tmp_path_factory.mktemp("data") / "odd.csv"
    pairs = itertools.product(range(len(NAMES)), repeat=2)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["head", "relation", "tail"])
        for i, j in pairs:
            if (i * 7 + j * 3) % 5 < 2:
                writer.writerow([NAMES[i], RELATIONS[(i + j) % 2], NAMES[j]])
        writer.writerow([NAMES[0], RELATIONS[0], NAMES[0]])  # is there already: 0 % 5 < 2
    (path.parent / "entity_labels.tsv").write_text(
        "a\tLabel of [i]a[/i]\nb\tTwo\nc\tTwo\n", encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Train once, by the command line."""
    path = tmp_path_factory.mktemp("runs") / "odd $run$ [b]"
    main(["train", str(data), *TINY, "--out", str(path)])
    return path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder, and write to what is no terminal."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal(monkeypatch):
    """Let what is written to be taken for a terminal; return a function that sets its width."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


@pytest.fixture
def call(capsys):
    """Return a function that runs the command line and returns (stdout, stderr)."""

    def run(*words):
        capsys.readouterr()
        main([str(word) for word in words])
        return capsys.readouterr()

    return run


@pytest.fixture
def ask(call):
    """Return a function that runs the command line and returns its JSON."""
    return lambda *words: strict(call(*words, "--json").out)


def strict(text):
    """Read JSON as the standard has it: no NaN, no Infinity, nothing beside it."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def figures(path):
    """Return the lines of metrics.jsonl without what is measured by the clock."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if "seconds" not in key}
        for line in lines
    ]


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


# Help.


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_every_verb_with_an_example(call, words):
    out, err = call(*words)
    assert err == ""
    assert len(VERBS) > 5
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S.*\n +nscaching {verb}", out, re.MULTILINE)


def test_the_readme_names_every_verb():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"| `nscaching {verb}" in readme


def test_the_version(call):
    assert call("--version").out == f"nscaching {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_that_parses(capsys, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    out = help_of(capsys, verb)
    assert "--json" in out
    (example,) = re.findall(r"^Example: (nscaching .*)$", out, re.MULTILINE)
    words = shlex.split(example)
    assert words[:2] == ["nscaching", verb]
    assert isinstance(cli._parse(verb, words[2:]), VERBS[verb])


def test_the_help_of_train_names_models_samplers_and_every_field(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # one column
    out = help_of(capsys, "train")
    (models,) = re.findall(r"--model STR +(.*?)--sampler", out, re.DOTALL)
    (samplers,) = re.findall(r"--sampler STR +(.*?)--dim", out, re.DOTALL)
    assert all(name in models for name in MODELS.names())
    assert all(name in samplers for name in SAMPLERS.names())
    for name in TrainConfig().flat():
        assert re.search(rf"{as_flag(name)}\b", out)


def test_help_waits_for_no_large_library():
    code = (
        "import sys, nscaching.cli.main as _; print({'torch', 'rich', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Settings.

OTHER = {
    "model": "ComplEx", "sampler": "uniform", "dim": 7, "norm": 2, "epochs": 3, "batch_size": 9,
    "lr": 0.25, "objective": "logistic", "margin": 1.5, "penalty": 0.125, "n1": 5, "n2": 6,
    "draw": "top", "refresh": "uniform", "temperature": 0.5, "lazy": 2, "side": "uniform",
    "candidates": "slots", "filter_known": True, "validate_every": 4, "patience": 8, "seed": 11,
    "device": "cpu", "threads": 1, "pretrain": "runs/x", "optimizer": "row-adam",
    "refresh_side": "drawn", "shared_candidates": True, "candidate_rows": "bfloat16",
    "kernels": "reference", "negatives": 3, "penalty_norm": "n3", "generator": "DistMult",
    "generator_lr": 0.5, "generator_pretrain": "runs/g", "entropy_bonus": 0.25,
    "adversarial": 0.5, "tail": 8,
    "scale": 2.0, "relation_weight": 0.5, "reciprocal": True,
    "cache_memory": "25%", "cache_place": "disk", "near": 4, "adagrad_start": 0.5,
    "validate_candidates": 12, "exchange": "strata", "strata": 5,
}  # fmt: skip
"""For every field a value that is not the default."""


def as_flags(values):
    return [
        word
        for name, value in values.items()
        for word in ([as_flag(name)] if value is True else [as_flag(name), str(value)])
    ]


def test_every_field_is_a_flag_and_a_key(tmp_path):
    defaults = TrainConfig().flat()
    assert OTHER.keys() == defaults.keys()
    assert all(value != defaults[name] for name, value in OTHER.items())
    expected = TrainConfig.from_dict(OTHER)
    assert cli._parse("train", ["world", *as_flags(OTHER)]).settings == expected
    write_toml(tmp_path / "all.toml", OTHER)
    assert cli._parse("train", ["world", "--config", "all.toml"]).settings == expected
    assert cli._parse("train", ["world", "--config=all.toml"]).settings == expected


@pytest.mark.parametrize("name", OTHER)
def test_a_flag_wins_over_the_file(tmp_path, name):
    write_toml(tmp_path / "all.toml", OTHER | {"data": "a.tsv", "labels": "l", "split_seed": 5})
    default = TrainConfig().flat()[name]
    words = [as_flag(f"no_{name}")] if default is False else [as_flag(name), str(default)]
    parsed = cli._parse("train", [*words, "--config", "all.toml"])
    assert parsed.settings == TrainConfig.from_dict(OTHER | {name: default})
    assert (parsed.where, parsed.labels, parsed.split_seed) == ("a.tsv", "l", 5)
    parsed = cli._parse("train", ["b.tsv", "--config", "all.toml", "--split-seed", "6"])
    assert (parsed.where, parsed.split_seed) == ("b.tsv", 6)


def test_a_run_is_repeated_exactly_by_its_config(data, trained, tmp_path, call):
    call("train", "--config", trained / "config.toml", "--out", tmp_path / "again")
    assert figures(tmp_path / "again") == figures(trained)
    first, again = Run.load(trained), Run.load(tmp_path / "again")
    assert (again.config, again.graph.source) == (first.config, first.graph.source)
    assert again.evaluate() == first.evaluate()
    # And it is the configuration that does it.
    call("train", "--config", trained / "config.toml", "--seed", 1, "--out", tmp_path / "other")
    assert figures(tmp_path / "other") != figures(trained)


def test_the_command_of_the_card_repeats_a_run(data, trained, tmp_path, call):
    card = (trained / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    (nscaching train .*)$", card, re.MULTILINE)
    words = shlex.split(command)[1:]
    assert words[-2:] == ["--out", trained.name]
    call(*words)
    assert figures(tmp_path / trained.name) == figures(trained)


def test_the_same_split_seed_and_labels_are_used_again(data, tmp_path, call):
    (tmp_path / "mine.tsv").write_text("a\tMine\n")
    words = ["--split-seed", 4, "--labels", "mine.tsv", *TINY]
    call("train", data, *words, "--epochs", 1, "--out", "one")
    call("train", "--config", "one/config.toml", "--out", "two")
    one, two = Run.load("one").graph, Run.load("two").graph
    assert one.fingerprint == two.fingerprint
    assert one.labels == two.labels == {"a": "Mine"}
    assert one.source == two.source
    assert one.source.split_seed == 4


@pytest.mark.parametrize(("model", "sampler"), [("TRANSH", "Bernoulli"), ("complex", "UNIFORM")])
def test_models_and_samplers_in_any_case(data, ask, model, sampler):
    found = ask("train", data, *TINY, "--model", model, "--sampler", sampler, "--out", "run")
    assert found["model"] == MODELS.canonical(model)
    assert found["sampler"] == SAMPLERS.canonical(sampler)
    config = Run.load("run").config
    assert (config.model, config.sampler) == (found["model"], found["sampler"])


# Results.


def test_train_tells_people(data, call):
    out, err = call("train", data, *TINY)
    folder = "runs/odd-transe-nscaching-seed0"
    assert f"run folder: {folder}" in out
    assert "TransE with nscaching on odd" in out
    assert Run.load(folder).config.dim == 4
    assert err.splitlines()[0].startswith("odd: 13 entities, 2 relations, ")
    assert err.count("note: 1 duplicate triple dropped from odd.csv\n") == 1
    assert err.count("note: split by seed 0 into train / valid / test") == 1
    assert f"run folder: {folder}-2" in call("train", data, *TINY).out  # nothing is replaced


def test_train_tells_programs(data, trained, ask):
    found = ask("train", data, *TINY, "--out", "run")
    run = Run.load("run")
    assert found["run"] == "run"
    assert (found["data"], found["epochs"], found["best_epoch"]) == ("odd", 2, run.best_epoch)
    assert found["test"] == run.result("test")
    assert found["valid"]["mrr"] == run.evaluate("valid")["mrr"]


def test_evaluate(trained, call, ask):
    run = Run.load(trained)
    expected = run.evaluate()
    assert ask("evaluate", trained) == {"run": str(trained), **expected}
    assert ask("evaluate", trained, "--split", "train", "--raw", "--ties", "optimistic") == {
        "run": str(trained),
        **run.evaluate("train", filtered=False, ties="optimistic"),
    }
    assert ask("evaluate", trained, "--memory-mb", 1) == {"run": str(trained), **expected}
    out, err = call("evaluate", trained)
    assert err == ""
    assert out.startswith(f"{trained.name}: test, filtered, realistic ties")
    for relation in expected["by_relation"]:
        (line,) = [line for line in out.splitlines() if line.startswith(f" {relation} ")]
        assert f"{expected['by_relation'][relation]['mrr']:.4f}" in line


def test_classify(trained, call, ask):
    expected = Run.load(trained).classify()
    assert ask("classify", trained) == {"run": str(trained), **expected}
    assert ask("classify", trained, "--split", "valid")["split"] == "valid"
    out, err = call("classify", trained)
    assert err == ""
    assert f"{expected['accuracy']:.4f}" in out


def test_predict_answers_for_programs(trained, ask):
    found = ask("predict", trained, "--head", "a", "--relation", RELATIONS[0], "--top", 100)
    assert found["head"] == "Label of [i]a[/i]"
    assert (found["relation"], found["tail"]) == (RELATIONS[0], None)
    assert len(found["answers"]) + found["known_facts_left_out"] == len(NAMES)
    scores = [answer["score"] for answer in found["answers"]]
    assert scores == sorted(scores, reverse=True)
    assert len(ask("predict", trained, "--head", "a", "--tail", "d")["answers"]) <= 2
    whole = ask("predict", trained, "--head", "a", "--relation", RELATIONS[0], "--tail", "d")
    assert isinstance(whole["score"], float)
    assert whole["plausible"] in (True, False)


def plain(text):
    """Let any run of blanks be one blank."""
    return " ".join(text.split())


@pytest.mark.parametrize("name", NAMES[: len(ODD)])
def test_odd_names_are_shown_as_they_are(trained, call, name):
    question = ["--relation", RELATIONS[1], "--tail", name]
    out, err = call("predict", trained, *question, "--known", "mark", "--top", 99, "--any")
    assert err == ""
    head, *rows, prior = map(plain, out.splitlines())
    assert head == f"(?, {RELATIONS[1]}, {plain(visible(name))}) score probability known"
    assert prior == ("probability: for a share of 0.5 true triples, the prior (--prior changes it)")
    figures = r" -\d+\.\d+ [01]\.\d+"
    row_of = re.compile(rf"^\d+\. (.*?){figures}( train| valid| test)?$")
    shown = {row_of.sub(r"\1", row) for row in rows}
    labels = {"a": "Label of [i]a[/i] (a)", "b": "Two (b)", "c": "Two (c)"}
    assert shown == {labels.get(each, plain(visible(each))) for each in NAMES}
    judged = plain(call("predict", trained, "--head", name, *question).out)
    name = plain(visible(name))
    assert judged.startswith(f"({name}, {RELATIONS[1]}, {name}): ")


def test_a_narrow_terminal_folds_names_and_cuts_none(trained, call, terminal):
    terminal(40)
    out = call("predict", trained, "--head", "d", "--relation", RELATIONS[0], "--top", 99).out
    letters = re.sub(r"\x1b\[[0-9;]*m|([-\d.]+ *)+$", "", out, flags=re.MULTILINE)
    *table, _prior, last = letters.splitlines()
    assert last.endswith("known facts left out; --known mark shows them")
    assert max(len(line) for line in table) <= 40
    assert "".join(NAMES[len(ODD) - 1].split()) in "".join(letters.split())
    assert "…" not in out


def test_a_terminal_sees_a_bar(data, call, terminal):
    terminal(200)
    out, err = call("train", data, *TINY, "--out", "[b]run[/b]")
    assert "epoch 2/2  loss" in err
    assert "test MRR" in err
    assert "run folder: [b]run[/b]" in out


def test_an_entity_is_asked_for_by_its_label(trained, ask):
    by_name = ask("predict", trained, "--head", "a", "--relation", RELATIONS[0])
    by_label = ask("predict", trained, "--head", "label of [I]A[/i]", "--relation", RELATIONS[0])
    assert by_name == by_label


def test_compare(trained, data, tmp_path, call, ask):
    call("train", data, *TINY, "--sampler", "bernoulli", "--out", "_b")
    before = sorted(tmp_path.iterdir())
    out, err = call("compare", trained, "_b")
    assert err == ""
    rows = {row.split()[-8]: row for row in out.splitlines()[1:]}
    assert rows.keys() == {"nscaching", "bernoulli"}
    assert f"{trained.name} {data.stem} TransE nscaching test" in plain(rows["nscaching"])
    found = ask("compare", trained, "_b")
    assert found["plot"] is None
    assert sorted(tmp_path.iterdir()) == before  # nothing is written unasked
    assert "plot: compare.png" in call("compare", trained, "_b", "--plot", "compare.png").out
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert [run["run"] for run in found["runs"]] == [str(trained), "_b"]
    assert [run["sampler"] for run in found["runs"]] == ["nscaching", "bernoulli"]
    assert found["runs"][0]["test"] == Run.load(trained).result("test")
    (tmp_path / "old.svg").write_text("old")
    ask("compare", "_b", "--plot", "old.svg", "--overwrite")
    assert "<svg" in (tmp_path / "old.svg").read_text()
    ask("compare", "_b", "--plot", "new/folder/plot.pdf")
    assert (tmp_path / "new" / "folder" / "plot.pdf").read_bytes().startswith(b"%PDF")


def test_runs_without_valid_and_test_have_no_figures(tmp_path, call, ask):
    (tmp_path / "few.tsv").write_text("a\tr\tb\nb\tr\tc\nc\tr\td\nd\tr\ta\n")
    found = ask("train", "few.tsv", *TINY, "--out", "run")
    assert (found["valid"], found["test"], found["best_epoch"]) == (None, None, 2)
    assert " – " in call("compare", "run").out
    assert "score" in call("predict", "run", "--head", "a", "--relation", "r", "--tail", "b").out


def test_datasets(call, ask):
    found = ask("datasets")
    assert list(found) == ["world", *datasets.KNOWN]
    assert found["world"]["here"] is True
    assert found["fb15k"]["train"] == 483142
    out, err = call("datasets")
    assert err == ""
    assert re.search(r"^ fb15k +14,951 +1,345 +483,142 +50,000 +59,071 ", out, re.MULTILINE)


def test_a_data_set_is_fetched_from_the_mirror_and_said_so(mirror, ask, call, monkeypatch):
    monkeypatch.setenv("NSCACHING_HOME", "home")
    monkeypatch.setenv("NSCACHING_MIRROR", str(mirror))
    assert ask("datasets")["wn18rr"]["here"] is False
    words = ["--dim", 1, "--n1", 1, "--n2", 1, "--epochs", 1, "--batch-size", 99999]
    # A model of size one on a real data set; ranking it takes a second or two.
    monkeypatch.setattr("nscaching.training.trainer.Trainer.rank", ranked)
    out, err = call("train", "WN18RR", *words, "--validate-every", 0, "--out", "run", "--json")
    assert strict(out)["data"] == "wn18rr"
    assert "wn18rr: 40,943 entities, 11 relations, 86,835 / 3,034 / 3,134 triples" in err
    assert err.count("entities of valid/test are not in train") == 1
    assert ask("datasets")["wn18rr"]["here"] is True


def ranked(trainer, split, epoch):
    metrics = dict.fromkeys(("mrr", "mr", "hits@1", "hits@3", "hits@10"), 1.0)
    return {"epoch": epoch, "split": split, **metrics, "trained_seconds": 0.0, "seconds": 0.0}


def test_demo(call, ask):
    found = ask("demo", "--epochs", 1, "--out", "here")
    assert [run["sampler"] for run in found["runs"]] == ["nscaching", "uniform", "bernoulli"]
    assert found["plot"] == "here/compare.png"
    assert [len(answer["answers"]) for answer in found["answers"]] == [3, 3, 3]
    graph = KnowledgeGraph.load("world")
    for name, way in WAYS.items():
        assert Run.load(f"here/{name}").config == settings_for(graph, **way | {"epochs": 1})
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--epochs", "1", "--out", "here"])
    assert stop.value.code == 2  # and nothing is trained over it
    out, _ = call("demo", "--epochs", 1, "--out", "there")
    assert "(Madagascar, speaks, ?)" in out
    assert "run folders: there/nscaching, there/uniform, there/bernoulli" in out


# As a program of its own.


def program(*words, **environment):
    command = [sys.executable, "-m", "nscaching", *map(str, words)]
    surroundings = os.environ | {"PYTHONWARNINGS": "error"} | environment
    return subprocess.run(command, capture_output=True, env=surroundings, check=False)


def test_the_program_leaves_stdout_to_json(data, trained):
    done = program("train", data, *TINY, "--out", "run", "--json")
    assert done.returncode == 0
    assert strict(done.stdout.decode())["run"] == "run"
    assert b"epoch 2/2" in done.stderr
    assert figures(Run.load("run").path) == figures(trained)  # in another process, the same


def test_an_output_without_utf8_gets_json_and_names_all_the_same(trained, monkeypatch):
    def ascii_of(*words):
        file = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, encoding="ascii"))
        main(["predict", str(trained), "--head", NAMES[4], "--relation", RELATIONS[0], *words])
        sys.stdout.flush()
        return file.getvalue().decode("ascii")

    assert strict(ascii_of("--json"))["head"] == NAMES[4]
    assert r"\U0001f642" in ascii_of()


def test_a_reader_that_leaves_early_is_no_error(trained):
    command = [sys.executable, "-m", "nscaching", "evaluate", str(trained), "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


# What a reader of the manual would try.


def test_keys_of_a_file_may_be_spelled_like_flags(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("batch-size = 64\nsplit-seed = 3\n")
    source, settings = read_settings(file)
    assert (settings.batch_size, source.split_seed) == (64, 3)
    file.write_text("batch-size = 64\nbatch_size = 32\n")
    with pytest.raises(UserError, match="batch-size is given twice"):
        read_settings(file)


def test_an_entity_may_be_called_none(tmp_path, ask):
    lines = [f"None\tr\te{i}\n" for i in range(6)] + [f"e{i}\tr\te{i + 1}\n" for i in range(5)]
    (tmp_path / "graph.tsv").write_text("".join(lines))
    ask("train", tmp_path / "graph.tsv", *TINY, "--out", "run")
    assert ask("predict", "run", "--head", "None", "--relation", "r")["head"] == "None"


def test_runs_of_one_name_are_told_apart(trained, call, tmp_path):
    for folder in ("a", "b"):
        shutil.copytree(trained, tmp_path / folder / "x")
    out, _ = call("compare", "a/x", "b/x")
    assert "a/x" in out
    assert "b/x" in out


def test_a_repeated_run_says_what_is_not_the_same(data, trained, tmp_path, call):
    file = tmp_path / "config.toml"
    text = (trained / "config.toml").read_text()
    file.write_text(text.replace("threads = 1", "threads = 7").replace("data_finger", "x_finger"))
    _, err = call("train", "--config", file, "--threads", 1, "--out", "again")
    assert "will not come out the same: its threads was 7 and is 1" in err


def test_other_data_do_not_take_the_labels_of_a_file(data, tmp_path, call):
    (tmp_path / "set.toml").write_text("data = 'elsewhere.tsv'\nlabels = 'gone.tsv'\n")
    call("train", data, "--config", "set.toml", *TINY, "--out", "run")
