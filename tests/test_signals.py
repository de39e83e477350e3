"""SIGINT and SIGTERM through the command line: a checkpoint, a line on how to go on, 130 or 143."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from nscaching.cli.main import main
from nscaching.cli.progress import Signals
from nscaching.errors import Stopped
from nscaching.kernels.choose import repeated
from resuming import assert_same, leave_out_pictures, lines

WORDS = ["--dim", "4", "--n1", "4", "--n2", "4", "--threads", "1", "--epochs", "18"]
WORDS += ["--model", "TransE", "--device", "cpu", "--validate-every", "9"]


def signalled(number, path, words):
    """Run the command line until the run has grown by a few epochs, then send it a signal."""
    before = len(lines(path)) if path.exists() else 0
    program = [sys.executable, "-m", "nscaching", "train", *words]
    with subprocess.Popen(
        program,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal; a test runner may have been started with it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not path.exists() or len(lines(path)) < before + 2:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(number)
        return process.wait(60), process.stderr.read().splitlines()[-1]


def test_both_signals_and_an_end(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole, path = tmp_path / "whole", tmp_path / "run"
    code, line = signalled(signal.SIGINT, path, ["world", "--out", "run", *WORDS])
    assert code == 130
    assert line.startswith("nscaching: stopped in epoch ")
    assert line.endswith("; to resume: nscaching train --resume run")
    code, line = signalled(signal.SIGTERM, path, ["--resume", "run"])
    assert code == 143
    assert line.endswith("; to resume: nscaching train --resume run")
    leave_out_pictures(monkeypatch)
    main(["train", "--resume", "run"])
    main(["train", "world", "--out", "whole", *WORDS])
    capsys.readouterr()
    assert_same(whole, path)


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("nscaching.cli.training.load_graph", "nscaching: stopped"),
        (
            "nscaching.kernels.caches.repeated",
            "nscaching: stopped before the first step; nothing was written",
        ),
    ],
)
def test_a_signal_before_the_first_step(moment, message, tmp_path, monkeypatch, capsys):
    """While data are loaded, or the cache is filled: there is nothing to keep."""

    def signalled_there(*arguments, **options):
        monkeypatch.setattr(moment, repeated)  # a second one would end the process
        signal.raise_signal(signal.SIGINT)
        return repeated(*arguments, **options)

    monkeypatch.setattr(moment, signalled_there)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal
    try:
        with pytest.raises(SystemExit) as stop:
            main(["train", "world", "--out", str(tmp_path / "run"), *WORDS])
    finally:
        signal.signal(signal.SIGINT, before)
    assert stop.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1] == message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "3"], "leave out --lr"),
        (["--batch_size=3"], "leave out --batch-size"),
        (["--config", "nowhere.toml"], "leave out --config"),
        (["--out", "x"], "leave out --out"),
        (["--probe-changes"], "leave out --probe-changes"),
        (["world"], "takes the data from the run folder: leave out world"),
        (["--checkpoint-every", "-1", "--resume", "nowhere"], "nowhere does not exist"),
    ],
)
def test_flags_that_would_change_a_run(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--resume", "run", *words])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_second_signal_ends_it_at_once():
    program = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job ignores
from nscaching.cli.progress import Signals
from nscaching.kernels.choose import repeated
with Signals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop() and stop.heard == signal.SIGTERM
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"still here\n", b"")


def test_signals_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def too_late():
        with Signals() as signals:
            assert not signals()
            signal.raise_signal(signal.SIGTERM)
            signals.check("too late")

    with pytest.raises(Stopped) as stop:
        too_late()
    assert (stop.value.code, str(stop.value)) == (143, "too late")
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_no_signals_in_other_threads():
    found = []

    def look():
        with Signals() as signals:
            found.append(signals())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [False]


def test_signals_that_are_ignored_stay_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGINT)
            assert not signals()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_time_limit_asks_to_stop_and_is_told_from_a_signal():
    with Signals(3600) as signals:
        assert not signals()
    with Signals(0) as signals:
        time.sleep(0.001)
        assert signals()
        assert signals.late
        signals.check("no signal")
        signal.raise_signal(signal.SIGTERM)
        assert signals()
        assert not signals.late
