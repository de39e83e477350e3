"""Jobs in processes: as in this process; what a process sees; how it ends."""

from __future__ import annotations

import multiprocessing
import os
import re
import time

import pytest
import torch

import process_jobs
from helpers import Hearing, threads
from nscaching import UserError
from nscaching.errors import Stopped, naming_flags
from nscaching.training import processes
from nscaching.training.processes import Here, Processes, ProcessLostError, how_many, places, pool

TWO = places(2, [])


def outcomes(running, jobs):
    """Run jobs (name, listener, *given) on all free processes; yield names and outcomes."""
    left, until = len(jobs), time.monotonic() + 60
    while left:
        assert time.monotonic() < until
        while jobs and (free := running.free()):
            name, listener, *given = jobs.pop(0)
            free.begin(name, listener, *given)
        for name, future in running.wait():
            left -= 1
            yield name, future


class Raised(Exception):
    """Of a listener."""


def listening(heard, raising):
    """Return a listener that keeps what it hears, and raises at one of the calls."""

    def method(name):
        def call(*given):
            heard.append((name, *given))
            if name == raising:
                raise Raised(name)

        return call

    return Hearing(**{name: method(name) for name in ("begin", "announce", "record", "note")})


@pytest.mark.parametrize("count", [1, 2])
def test_here_and_in_processes_jobs_and_listeners_meet_alike(count):
    """The plain twin is this process; exceptions of a listener end the job, wherever it runs."""
    cases = [("fine", ""), ("error", ""), ("fine", "record"), ("fine", "announce")]
    found = {}
    with pool(count, ["cpu"], pytest.fail, process_jobs.talk) as running:
        assert isinstance(running, Here if count == 1 else Processes)
        heard = {case: [] for case in cases}
        jobs = [(case, listening(heard[case], case[1]), case[0]) for case in cases]
        for case, future in outcomes(running, jobs):
            error = future.exception()
            found[case] = future.result() if error is None else (type(error), str(error))
    assert found == {
        ("fine", ""): ("fine", False),
        ("error", ""): (UserError, "the loss is nan"),
        ("fine", "record"): (Raised, "record"),
        ("fine", "announce"): (Raised, "announce"),
    }
    whole = [
        ("begin", [{"epoch": 1}]), ("announce", "numba kernels"),
        ("record", {"epoch": 2, "mrr": 0.5}), ("note", "a note"),
    ]  # fmt: skip
    assert list(heard.values()) == [whole, whole, whole[:3], whole[:2]]


def test_a_process_has_one_gpu_and_its_share_of_the_threads(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-8f2a,7")
    gpus = places(2, ["5", "GPU-8f2a"])
    with threads(5), Processes(gpus, pytest.fail, process_jobs.look, "shared") as running:
        while not all(process.ready for process in running._alive):
            running.wait()
        jobs = [(i, Hearing(), i) for i in range(12)]
        found = [future.result() for _, future in outcomes(running, jobs)]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,GPU-8f2a,7"
        children = {child.pid for child in multiprocessing.active_children()}
    assert {process for process, *_ in found} == children
    assert len({(process, gpu) for process, gpu, *_ in found}) == 2
    assert {gpu for _, gpu, *_ in found} == {"5", "GPU-8f2a"}
    assert {(threads, shared) for _, _, threads, shared, _ in found} == {(2, "shared")}
    assert sorted(given for *_, given in found) == list(range(12))
    assert not multiprocessing.active_children()


def test_gpus_are_those_that_are_visible(monkeypatch):
    assert how_many(0, ["auto"]) == max(1, torch.cuda.device_count())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert processes.gpus_of(["auto"]) == processes.gpus_of(["cpu", "cuda"]) == ["0", "1", "2"]
    assert processes.gpus_of(["cpu"]) == []
    assert [how_many(n, [d]) for n in (0, 2) for d in ("auto", "cpu")] == [3, 1, 2, 2]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6, 2,GPU-8f2a,-1,4")  # -1 hides what follows
    assert processes.gpus_of(["cuda"]) == ["6", "2", "GPU-8f2a"]
    assert places(2, ["6", "2", "9"]) == [("GPU 6", "6"), ("GPU 2", "2")]
    assert places(3, ["6", "2"])[1:] == [("process 2 on GPU 2", "2"), ("process 3 on GPU 6", "6")]
    with pytest.raises(UserError, match="processes must be at least 0, not -1"):
        how_many(-1, ["cpu"])


def test_a_killed_process_is_named_and_the_others_go_on():
    def kill(record):
        (one,) = [process for process in running._alive if process.job and process.job[0] == 0]
        one.process.kill()

    with Processes(TWO, pytest.fail, process_jobs.talk) as running:
        quiet = {"note": lambda text: None}
        jobs = [(0, Hearing(record=kill), "x"), *[(i, Hearing(**quiet), "x") for i in range(1, 5)]]
        found = dict(outcomes(running, jobs))
        lost = found.pop(0).exception()
        assert isinstance(lost, ProcessLostError)
        assert re.fullmatch(r"process \d: killed by SIGKILL; 1 process of 2 left", str(lost))
        assert {found[i].result() for i in range(1, 5)} == {("x", False)}
        # The last one, while it waits for a job.
        said, running.note = [], lambda text: said.append(text)
        running._alive[0].process.kill()
        while running._alive:
            running.wait()
        assert said[0].endswith("killed by SIGKILL; 0 processes of 2 left")
        with pytest.raises(UserError, match=r"^none of 2 processes is left: process \d: killed by"):
            running.free()


def test_a_bug_is_one_line_and_its_traceback_is_the_cause():
    with naming_flags(), Processes(TWO, pytest.fail, process_jobs.talk) as running:
        with pytest.warns(UserWarning, match="a warning"):
            list(outcomes(running, [(1, Hearing(note=lambda text: None), "warning")]))
        line = r"^process \d: ZeroDivisionError: x / 0; --debug shows where$"
        with pytest.raises(UserError, match=line) as bug:
            list(outcomes(running, [(2, Hearing(note=lambda text: None), "bug")]))
    assert 'process_jobs.py", line' in str(bug.value.__cause__)


def test_all_jobs_are_asked_to_stop():
    with Processes(TWO, pytest.fail, process_jobs.wait_for_stop) as running:
        heard = []

        def stop(record):
            heard.append(record)
            if len(heard) == 2:
                running.stop()

        jobs = [(i, Hearing(record=stop), *()) for i in range(2)]
        found = [future.exception() for _, future in outcomes(running, jobs)]
    assert [type(error) for error in found] == [Stopped] * 2
    assert {str(error) for error in found} == {"stopped before the first step"}
