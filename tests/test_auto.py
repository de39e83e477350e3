"""A search within a time limit: what it trains when, that it ends in time, and goes on after any
end."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from helpers import graph_of, random_graph
from nscaching import Run, UserError, auto, train
from nscaching.automatic import candidates, journal, plan, search
from nscaching.automatic.candidates import BASES, Candidate, endless, make_config, neighbours
from nscaching.automatic.plan import Pace, models, next_step, ranked, share
from nscaching.automatic.slices import Slice, Watch
from nscaching.cli.main import main
from nscaching.errors import Stopped
from nscaching.training.listener import Stage
from nscaching.training.trainer import Trainer

PLACE = {"seed": 0, "device": "cpu", "threads": 1}
MINUTES = 1.0  # never used up: these searches end because all is tried
GRAPH = random_graph(entities=15, train=60, valid=12, test=12)


@pytest.fixture
def few(monkeypatch):
    """Let there be two models with one variant each, and no plot."""
    for name in list(BASES)[2:]:
        monkeypatch.delitem(BASES, name)
    monkeypatch.setattr(plan, "neighbours", lambda config: neighbours(config)[:1])
    monkeypatch.setattr("nscaching.runs.run.plot_run", lambda run, path: path.touch())
    monkeypatch.setattr("os.fsync", lambda file: None)


class Counting(Watch):
    """Counts the slices, and asks to stop at one of its calls."""

    def __init__(self, stop_at=math.inf):
        self.calls, self.stop_at, self.ended, self.said = 0, stop_at, [], []

    def announce(self, text):
        self.said.append(text)

    def end(self, candidate, best):
        self.ended.append((candidate.name, best))

    def stop(self):
        self.calls += 1
        return self.calls == self.stop_at


def found(result):
    """Return what a search came to, without what clocks measured."""
    return [
        {key: value for key, value in row.items() if key != "seconds"} for row in result.leaderboard
    ]


def lines(path):
    return [json.loads(line) for line in (path / "journal.jsonl").read_text().splitlines()]


# What is trained when.


def make(base, changes):
    return make_config(GRAPH, base, changes, PLACE)


def simulate(mrr, length, seconds=1.0, names=tuple(BASES)):
    """Run a search without training; return the steps (name, seconds before, seconds after).

    ``mrr`` and ``length`` are functions of the name: the last MRR and the seconds it takes.
    """
    tried, steps = [], []
    while step := next_step(tried, names, seconds, make):
        one = step.candidate
        if one is None:
            config = endless(make(step.base, step.changes), 1)
            one = Candidate(len(tried) + 1, step.base, step.changes, step.parent, 1, 3, config)
            tried.append(one)
        before, end = one.seconds, length(one.name)
        assert one.is_open
        assert before < step.seconds
        one.seconds = min(step.seconds, end)
        value = mrr(one.name) * one.seconds / end
        one.looks.append({"epoch": len(one.looks) + 1, "mrr": value})
        one.state = "finished" if one.seconds == end else "stopped"
        steps.append((one.name, before, one.seconds))
    return tried, steps


def test_the_better_half_trains_on():
    strength = {name: 0.5 - 0.01 * place for place, name in enumerate(BASES)}
    tried, steps = simulate(lambda name: strength.get(name, 0.45), lambda name: 20.0)
    names = list(BASES)
    assert steps[:6] == [(name, 0.0, 1.0) for name in names]
    assert steps[6:9] == [(name, 1.0, 2.0) for name in names[:3]]
    assert steps[9:11] == [(name, 2.0, 4.0) for name in names[:2]]
    # 13 of 20 shares were used when the best goes on alone.
    assert sum(after - before for _, before, after in steps[:11]) == 13
    assert steps[11:14] == [(names[0], 4.0, 20.0), (names[1], 4.0, 20.0), (names[2], 2.0, 20.0)]
    variants = neighbours(make("ComplEx", {}))
    assert steps[14 : 14 + len(variants)] == [
        (f"ComplEx, {name} {value:g}", 0.0, 20.0)
        for each in variants
        for name, value in each.items()
    ]
    # While time is left, the others are trained to their ends.
    assert all(one.state == "finished" for one in tried)
    assert [step[0] for step in steps[-3:]] == names[3:]


def test_the_seconds_of_a_later_slice_are_added(monkeypatch):
    one = Candidate(1, "ComplEx", {}, 0, 1, 5, make_config(GRAPH, "ComplEx", {}, PLACE))
    one.seconds = 6.0
    now = iter([100.0, 103.0, 105.0])
    clock = SimpleNamespace(spent=0.0, seconds=60.0, left=60.0)
    piece = Slice(one, 10.0, clock, 0.0, Watch(), lambda _: None)
    monkeypatch.setattr("nscaching.automatic.slices.time.monotonic", lambda: next(now))
    seen = []
    for done in (1, 2):
        piece.progress(Stage.TRAINING, done, 3)
        seen.append((one.seconds, piece.stop()))
    piece.record({"split": "valid", "mrr": 0.5})
    assert [*seen, (one.seconds, piece.stop())] == [(6.0, False), (9.0, False), (11.0, True)]


def test_a_late_starter_is_trained_when_time_is_left():
    value = {"RotatE": 0.9}.get
    tried, steps = simulate(
        lambda name: value(name, 0.5), lambda name: 2.0 if name != "RotatE" else 6
    )
    assert ("RotatE", 1.0, 2.0) not in steps  # 0.15 after one share, the others 0.25
    assert ("RotatE", 1.0, 6) in steps
    assert ranked(tried)[0].name == "RotatE"


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_fewer_models_are_halved_too(count):
    names = list(BASES)[:count]
    _, steps = simulate(lambda name: 0.5, lambda name: 20.0, names=names)
    first = [step for step in steps if step[1:] == (0.0, 1.0)]
    assert [step[0] for step in first] == names
    alone = next(place for place, step in enumerate(steps) if step[2] == 20.0)
    kept = {1: [], 2: [], 3: [2], 5: [3, 2]}[count]
    assert alone == count + sum(kept)


def test_the_variants_climb_until_none_is_better():
    def mrr(name):
        dim = int(name.partition("dim ")[2].partition(",")[0] or 200)
        return 0.5 - 0.1 * abs(math.log2(dim / 800)) if name.startswith("TransE") else 0.1

    tried, _ = simulate(mrr, lambda name: 0.5, names=["ComplEx", "TransE"])
    assert ranked(tried)[0].name == "TransE, dim 800"
    assert any(one.changes == {"dim": 1600} for one in tried)
    plain = [one.config.changed(epochs=1) for one in tried]
    assert len({str(config) for config in plain}) == len(plain)


def test_a_search_in_which_all_fail_ends():
    one = Candidate(1, "ComplEx", {}, 0, 1, 3, make("ComplEx", {}), state="failed")
    assert next_step([one], ["ComplEx"], 1.0, make) is None


def test_short_time_tries_fewer_models():
    pace = Pace(setup=1.0, epoch=4.0, valid=1.0)
    assert models(600.0, pace) == list(BASES)
    assert models(60.0, pace) == list(BASES)[:2]
    assert models(20.0, pace) == ["ComplEx"]
    assert share(600.0, pace) == 30.0
    assert share(60.0, pace) == 13.0


@pytest.mark.parametrize("base", BASES)
def test_variants_change_one_setting_each(base):
    config = make(base, {})
    for change in neighbours(config):
        other = make(base, change).flat()
        different = {name for name, value in config.flat().items() if other[name] != value}
        assert different >= set(change)
        assert different <= {*change, "scale"}  # TransE's goes with the dimensions
    assert {len(change) for change in neighbours(config)} == {1}


# A whole search.


@pytest.mark.usefixtures("few")
def test_the_best_by_validation_is_the_run_and_is_repeatable(tmp_path, monkeypatch):
    ranked_test, plain = [], Trainer.rank

    def rank(self, split, epoch):
        if split == "test":
            ranked_test.append(self.config.model)
        return plain(self, split, epoch)

    monkeypatch.setattr(Trainer, "rank", rank)
    watch = Counting()
    result = auto(GRAPH, MINUTES, out=tmp_path / "x", watch=watch, threads=1)
    assert len(ranked_test) == 1
    rows = result.leaderboard
    models_of = [row for row in rows if row["kind"] == "model"]
    assert sorted(rows, key=lambda row: -row["mrr"]) == rows
    assert {row["state"] for row in models_of} == {"gains no more"}
    assert len(models_of) > 2
    rules = GRAPH.audit().rules
    assert {row["mrr"] for row in rows if row["kind"] == "rule"} == {
        of["mrr"] for of in rules["valid"].values()
    }
    assert watch.said == GRAPH.audit().sentences() == result.findings
    assert len(watch.ended) == len(models_of)

    # The run of the folder is the one at the top, and training alone comes to the same.
    run = Run.load(tmp_path / "x" / "run")
    assert run.result("valid")["mrr"] == models_of[0]["mrr"] == run.evaluate("valid")["mrr"]
    assert run.result("test") == result.test
    alone = train(GRAPH, run.config)
    assert alone.result("test")["mrr"] == result.test["mrr"]
    assert alone.best_epoch == run.best_epoch == models_of[0]["best_epoch"]

    # The files.
    written = json.loads((tmp_path / "x" / "leaderboard.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(result.to_dict()))
    with (tmp_path / "x" / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["candidate"] for row in table] == [row["candidate"] for row in rows]
    assert "test" not in table[0]
    page = (tmp_path / "x" / "auto.html").read_text(encoding="utf-8")
    assert f"{result.test['mrr']:.3f}" in page
    assert "With more time" in page
    assert "All is tried" in page
    assert "he trivial rules, whose validation MRR is " in result.verdict
    assert result.verdict[1:] in page
    assert result.advice() == []
    assert f"nscaching tune {GRAPH.name} --model {run.config.model}" in page

    # The same command trains nothing, ranks nothing, and leaves the run as it is.
    monkeypatch.setattr(search, "train", None)
    again = auto(GRAPH, MINUTES, out=tmp_path / "x", threads=1)
    assert found(again) == found(result)
    assert again.run.path == run.path
    assert len(ranked_test) == 2  # by the training alone
    assert not (tmp_path / "x" / "run-2").exists()
    assert "ComplEx" in repr(again) or "TransE" in repr(again)


@pytest.mark.usefixtures("few")
def test_without_a_folder_the_run_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = auto(GRAPH, MINUTES, threads=1)
    assert result.run.path is result.path is None
    assert result.run.evaluate()["mrr"] == result.test["mrr"]
    assert not list(tmp_path.iterdir())


# Any end, and going on.


@pytest.mark.usefixtures("few")
def test_a_stopped_search_goes_on_as_if_it_had_not_been(tmp_path):
    watch = Counting()
    whole = auto(GRAPH, MINUTES, out=tmp_path / "whole", threads=1, watch=watch)
    stops = [1, watch.calls // 2, watch.calls // 4, watch.calls // 3]
    path, messages = tmp_path / "x", []
    for stop in stops:
        try:
            auto(GRAPH, MINUTES, out=path, threads=1, watch=Counting(stop))
        except Stopped as stopped:
            messages.append(str(stopped))
            assert path.exists() == (messages != ["stopped; nothing was written"])
    assert messages[0] == "stopped; nothing was written"
    assert any(re.search(r"^stopped; best so far: .*; the same command", m) for m in messages[1:])
    result = auto(GRAPH, MINUTES, out=path, threads=1)
    assert found(result) == found(whole)
    assert result.test["mrr"] == whole.test["mrr"]


def files_of(path, graph=GRAPH):
    path.mkdir()
    for split in ("train", "valid", "test"):
        text = [f"e{h}\tr{r}\te{t}\n" for h, r, t in graph.split(split).tolist()]
        (path / f"{split}.tsv").write_text("".join(text))
    return path


def test_it_survives_being_killed(tmp_path, capsys, monkeypatch):
    data, out = files_of(tmp_path / "data"), tmp_path / "out"
    words = ["auto", str(data), "--minutes", "2", "--out", str(out), "--threads", "1", "--json"]
    command = [sys.executable, "-m", "nscaching", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 110
        while not (out / "journal.jsonl").exists() or len(ended(out)) < 2:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(UserError, match="out is in use: another process"):
            auto(GRAPH, 2, out=out)
        process.send_signal(signal.SIGKILL)
    before = ended(out)
    # A kill in the middle of a line.
    with (out / "journal.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "look", "numb')
    monkeypatch.setattr("os.fsync", lambda file: None)
    main(words)
    result = json.loads(capsys.readouterr().out)
    assert ended(out)[: len(before)] == before
    assert set(Counter(ended(out)).values()) == {1}  # nobody was trained again
    assert [row["state"] for row in result["leaderboard"] if row["kind"] == "model"] == [
        "gains no more"
    ] * len(ended(out))
    assert result["valid"]["mrr"] == max(
        row["mrr"] for row in result["leaderboard"] if row["kind"] == "model"
    )
    main(words[:-1])
    table = capsys.readouterr().out
    assert "most frequent answers of the relation" in table
    assert "with more time:\n  all is tried that auto knows" in table


def ended(path):
    """Return the candidates that were trained to their ends, by the whole lines of the journal."""
    text = (path / "journal.jsonl").read_text(encoding="utf-8")
    whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line["number"] for line in whole if line.get("state") == "finished"]


@pytest.mark.usefixtures("few")
def test_a_lost_checkpoint_is_not_the_result(tmp_path, monkeypatch):
    """A killed process may have written lines, but no checkpoint or an older one."""
    path = tmp_path / "x"
    monkeypatch.setattr(plan, "neighbours", lambda config: [])
    whole = auto(GRAPH, MINUTES, out=path, threads=1)
    last = [line for line in lines(path) if line["event"] in ("look", "run")]
    leader = last.pop()["number"]
    look = [line for line in last if line["number"] == leader][-1]
    later = {**look["record"], "epoch": look["record"]["epoch"] + 1, "mrr": 0.99}
    with (path / "journal.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({**look, "record": later}) + "\n")
    result = auto(GRAPH, MINUTES, out=path, threads=1)
    assert found(result) == found(whole)
    assert result.run.path.name == "run"

    kept = [
        line for line in lines(path) if line["event"] != "run" and line.get("state") != "finished"
    ]
    (path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    shutil.rmtree(path / "candidates")
    result = auto(GRAPH, MINUTES, out=path, threads=1)
    assert found(result) == found(whole)
    assert result.run.path.name == "run-2"  # nothing is overwritten


# The time.


@pytest.mark.usefixtures("few")
def test_the_time_is_kept_and_more_time_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("nscaching.automatic.slices.gains_no_more", lambda one: False)
    monkeypatch.setattr(search, "gains_no_more", lambda one: False)
    monkeypatch.setattr(search, "FINISH", 1.0)
    path, looks = tmp_path / "x", []
    for minutes in (0.06, 0.09):
        result = auto(GRAPH, minutes, out=path, threads=1)
        slices = [line for line in lines(path) if line["event"] == "state"]
        # One validation of this graph takes milliseconds; the rest is for a busy machine.
        assert slices[-1]["spent"] < 60 * minutes
        assert result.spent < 60 * minutes + 2
        looks.append(max(row["epochs"] for row in result.leaderboard if row["kind"] == "model"))
        assert {row["state"] for row in result.leaderboard} == {None, "stopped early"}
        assert result.advice()[0].startswith("train ")
        assert f"--minutes {2 * minutes:.3g}" in result.command()
        assert "stopped early" in (path / "auto.html").read_text(encoding="utf-8")
    assert looks[1] > looks[0]
    # Each model had its share before anybody had more; the best had the most.
    order = [line["number"] for line in lines(path) if line["event"] == "state"]
    assert order[:2] == [1, 2]


def test_too_short_a_time_writes_nothing(tmp_path):
    with pytest.raises(UserError, match=r"^minutes 0.03 is too short: .* give at least 0\.\d+$"):
        auto(GRAPH, 0.03, out=tmp_path / "x", threads=1)
    for minutes in (0, -1, math.nan, math.inf):
        with pytest.raises(UserError, match=r"^minutes must be a positive number"):
            auto(GRAPH, minutes, out=tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("few")
def test_an_audit_that_takes_too_long_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "AUDIT", 0.0)
    result = auto(GRAPH, MINUTES, out=tmp_path / "x", threads=1)
    assert result.findings == ["the audit was left out: it takes more than 0% of the time"]
    assert {row["kind"] for row in result.leaderboard} == {"model"}
    assert result.verdict == ""


# Bad input.


@pytest.mark.usefixtures("few")
def test_a_candidate_that_diverges_is_said_to_fail(tmp_path, monkeypatch):
    monkeypatch.setitem(BASES, "TransE", {"model": "DistMult", "lr": 1e38})
    monkeypatch.setattr(plan, "neighbours", lambda config: [])
    result = auto(GRAPH, MINUTES, out=tmp_path / "x", threads=1)
    failed = result.leaderboard[-1]
    assert failed["mrr"] is None
    assert failed["state"].startswith("failed: the loss is ")
    assert result.run.config.model == "ComplEx"
    assert "failed: the loss" in (tmp_path / "x" / "auto.html").read_text(encoding="utf-8")


def test_what_cannot_be_searched_is_refused_before_anything_is_written(tmp_path):
    for splits, what in ((([(0, 0, 1)],), "validation"), (([], [(0, 0, 1)]), "training")):
        graph = graph_of(*splits, entities=2, relations=1)
        with pytest.raises(UserError, match=f"has no {what} triples, which auto needs"):
            auto(graph, out=tmp_path / "x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "text.txt").touch()
    with pytest.raises(UserError, match="mine exists and holds no search; choose another out"):
        auto(GRAPH, out=tmp_path / "mine")
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


START = {"event": "start", "data": "", "seed": 0, "setup": 0.1, "epoch": 0.1, "valid": 0.1}
CANDIDATE = {
    "event": "candidate", "number": 1, "base": "ComplEx", "changes": {}, "parent": 0,
    "validate_every": 1, "patience": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"data": "other"}, "holds another search: its data was other and is "),
        ({"seed": 1}, "holds another search: its seed was 1 and is 0; choose another out"),
        ({"setup": math.nan}, "not a line of a journal"),
        ({"event": "other"}, "not a line of a journal"),
        ({**CANDIDATE, "base": "evil.py:Model"}, "not a line of a journal"),
        ({**CANDIDATE, "changes": {"model": "evil.py:Model"}}, "not a line of a journal"),
        ({**CANDIDATE, "changes": {"dim": 0}}, "dim must be at least 1"),
        ({**CANDIDATE, "number": 2}, "candidate 2 is misplaced"),
        ({"event": "state", "number": 1, "seconds": 1, "state": "finished", "reason": ""},
         "there is no candidate 1"),
        ({"event": "audit", "findings": [], "rules": {"valid": {"both": {}}}},
         "not a line of a journal"),
    ],
)  # fmt: skip
def test_a_journal_of_a_stranger_is_refused(tmp_path, line, message):
    line = line if "event" in line and line["event"] != "other" else START | line
    if "data" in line and line["data"] == "":
        line["data"] = GRAPH.fingerprint
    (tmp_path / "journal.jsonl").write_text(json.dumps({**line, "spent": 1.0}) + "\n")
    with pytest.raises(UserError, match=message):
        auto(GRAPH, out=tmp_path)


def test_the_names_of_folders_are_of_files(tmp_path):
    graph = random_graph()
    graph.name = "../../a b\n"
    assert journal.default_out(graph).parts == ("auto", "_.._a_b_")
    assert candidates.LEAST_DIM > 0
