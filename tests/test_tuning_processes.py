"""Trials in several processes: no point twice, ordinary results, and nothing is left running."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optuna.storages import InMemoryStorage

from helpers import random_graph
from nscaching import tune
from nscaching.cli import main as cli
from nscaching.tuning import search
from test_tuning import FIXED, GRID, data, graph, rows_of, words_of  # noqa: F401

FEW = {**FIXED, "epochs": 2}


def points_of(tuning):
    return [tuple(trial.settings.values()) for trial in tuning.trials]


def test_points_that_run_are_not_given_again():
    some = search.Search(GRID, {**FIXED, "seed": 3}, 24, None)
    study = some._load(InMemoryStorage())
    asked = [study.ask(dict(some.space)).params for _ in range(24)]
    assert sorted(tuple(point.values()) for point in asked) == sorted(
        itertools.product(*GRID.values())
    )
    # With one trial at a time the random ones are the same.
    alone = tune(random_graph(), GRID, trials=10, **{**FEW, "epochs": 1, "seed": 3})
    assert [trial.settings for trial in alone.trials] == asked[:10]


class Killing(search.Watch):
    """Kills the first of the processes in the middle of a trial."""

    def __init__(self):
        self.said, self.killed = [], False

    def record(self, record):
        if self.where == "process 1" and not self.killed:
            self.killed = True
            processes = multiprocessing.active_children()
            min(processes, key=lambda one: int(one.name.rpartition("-")[2])).kill()

    def note(self, text):
        self.said.append(text)


def test_a_search_in_two_processes_of_which_one_is_killed(graph, tmp_path):  # noqa: F811
    # With TransE, the settings of a trial exclude each other; with the highest rate, it diverges.
    space = {"lr": [0.01, 0.02, 0.03, 1e38], "dim": [2, 3], "model": ["DistMult", "TransE"]}
    settings = {name: FEW[name] for name in FEW if name != "model"} | {"penalty_norm": "n3"}
    watch, out = Killing(), tmp_path / "x"
    found = tune(graph, space, trials=99, out=out, processes=2, watch=watch, **settings)
    assert not multiprocessing.active_children()
    assert watch.said == [
        "process 1: killed by SIGKILL; 1 process of 2 left",
        "1 trial interrupted; the same search again tries as many others",
    ]
    assert len(set(points_of(found))) == len(found.trials) == 15
    before = rows_of(out)
    # It goes on in its folder with another number of processes, here with none but this one.
    whole = tune(graph, space, trials=99, out=out, **settings)
    assert sorted(points_of(whole)) == sorted(itertools.product(*space.values()))
    assert rows_of(out)[:15] == before
    # A trial is what it is anywhere.
    alone = tune(graph, space, trials=99, **settings)
    for trial in alone.trials:
        (other,) = (one for one in whole.trials if one.settings == trial.settings)
        assert {trial.state, other.state} in ({"finished"}, {"failed"}, {"finished", "pruned"})
        assert trial.reason == other.reason
        if trial.state == other.state:
            assert trial.mrr == other.mrr
    reasons = [trial.reason[:25] for trial in found.trials if trial.state == "failed"]
    assert set(reasons) == {"the loss is nan in epoch ", "penalty_norm n3 is for se"}


def children_of(process):
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def lives(number):
    """Say whether a process runs; one that ended may wait for its parent to look at it."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until(true, process=None):
    until = time.monotonic() + 60
    while not true():
        assert process is None or process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_search(number, data, tmp_path, monkeypatch, capsys):  # noqa: F811
    out = tmp_path / "out"
    words = words_of(data, "--out", out, "--json", epochs=1)
    command = [sys.executable, "-m", "nscaching", *words, "--trials", "100000", "--processes", "2"]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        wait_until(lambda: (out / "best.toml").exists() and len(rows_of(out)) > 1, process)
        children = children_of(process)
        assert all(map(lives, children))
        assert len(children) == 3  # one of them is Python's, and cleans up
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait(60) == (130 if number == signal.SIGINT else -number)
        wait_until(lambda: not any(map(lives, children)))
        *_, line, last = process.stderr.read().splitlines()
    if number == signal.SIGINT:
        assert line.endswith(
            f"of 100000 trials are kept in {out}; the same command continues there"
        )
        assert last == "nscaching: stopped"
        return
    monkeypatch.setattr("nscaching.tuning.result.Tuning.plot", lambda self, path: None)
    before = rows_of(out)
    cli.main([*words, "--trials", str(len(before) + 2)])
    assert len(json.loads(capsys.readouterr().out)["trials"]) == len(before) + 2
    after = rows_of(out)
    assert after[: len(before)] == before
    assert len({(row["dim"], row["lr"], row["margin"]) for row in after}) == len(after)


def test_errors_of_the_user_stay_one_line(data, tmp_path, capsys):  # noqa: F811
    for words in (["--processes", "-1"], ["--processes", "2000"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(words_of(data, *words))
        assert stop.value.code == 2
        assert capsys.readouterr().err.startswith("nscaching: --processes must be at ")
