"""Jobs in processes: as in this process; what a process sees; how it ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import time
import weakref

import pytest
import torch

import process_jobs
from helpers import Hearing, threads
from nscaching import UserError
from nscaching.errors import Stopped, naming_flags
from nscaching.training import processes
from nscaching.training.processes import Here, Processes, ProcessLostError, how_many, places


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


class RaisedError(Exception):
    """Of a listener."""


def listening(heard, raising=""):
    """Return a listener that keeps what it hears, and raises at one of the calls."""

    def method(name):
        def call(*given):
            heard.append((name, *given))
            if name == raising:
                raise RaisedError(name)

        return call

    return Hearing(**{name: method(name) for name in ("begin", "announce", "record", "note")})


def meet(running):
    """Let jobs and listeners meet: they end well, by an error, by what the listener raises."""
    cases = [("fine", ""), ("error", ""), ("fine", "record"), ("fine", "announce")]
    found, heard = {}, {case: [] for case in cases}
    jobs = [(case, listening(heard[case], case[1]), "talk", case[0]) for case in cases]
    for case, future in outcomes(running, jobs):
        error = future.exception()
        found[case] = future.result() if error is None else (type(error), str(error))
    return found, heard


def test_a_process_does_what_this_one_does_with_a_gpu_and_threads_of_its_own(monkeypatch):
    """The plain twin is ``Here``; exceptions of a listener end the job, wherever it runs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-8f2a,7")
    gpus = places(2, ["5", "GPU-8f2a"])
    with (
        threads(5),
        naming_flags(),
        Processes(gpus, pytest.fail, process_jobs.run, "shared") as running,
    ):
        while not all(process.ready for process in running._alive):
            running.wait()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,GPU-8f2a,7"
        found = [f.result() for _, f in outcomes(running, [(i, Hearing(), "look") for i in "ab"])]
        children = {child.pid for child in multiprocessing.active_children()}
        assert {process for process, *_ in found} == children
        assert sorted(rest for _, *rest in found) == [["5", 2, "shared"], ["GPU-8f2a", 2, "shared"]]

        found, heard = meet(running)
        assert (found, heard) == meet(Here(process_jobs.run, "shared"))
        assert found["fine", ""] == ("fine", False)
        assert found["fine", "record"] == (RaisedError, "record")
        assert len(heard["fine", ""]) == 4

        with pytest.warns(RuntimeWarning, match="a warning"):
            list(outcomes(running, [(1, listening([]), "talk", "warning")]))
        line = r"^GPU (5|GPU-8f2a): ZeroDivisionError: x / 0; --debug shows where$"
        with pytest.raises(UserError, match=line) as bug:
            list(outcomes(running, [(2, listening([]), "talk", "bug")]))
        assert 'process_jobs.py", line' in str(bug.value.__cause__)
    assert not multiprocessing.active_children()


def test_a_job_that_failed_holds_no_memory():
    class Large:
        """What a training holds."""

    held = []

    def fail(listener):
        large = Large()
        held.append(weakref.ref(large))
        raise UserError("out of memory")

    here = Here(fail)
    gc.disable()
    try:
        here.begin("one", Hearing())
        ((_, future),) = here.wait()
        assert str(future.exception()) == "out of memory"
        assert held[0]() is not None
        del future
        assert held[0]() is None
    finally:
        gc.enable()


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


def test_killed_processes_are_named_and_the_others_go_on_and_stop_when_asked():
    def kill(record):
        (one,) = [process for process in running._alive if process.job and process.job[0] == 0]
        one.process.kill()

    with Processes(places(2, []), pytest.fail, process_jobs.run, "shared") as running:
        jobs = [(0, Hearing(record=kill), "talk", "x")]
        jobs += [(i, listening([]), "talk", "x") for i in range(1, 5)]
        found = dict(outcomes(running, jobs))
        lost = found.pop(0).exception()
        assert isinstance(lost, ProcessLostError)
        assert re.fullmatch(r"process \d: killed by SIGKILL; 1 process of 2 left", str(lost))
        assert [found[i].result() for i in range(1, 5)] == [("x", False)] * 4

        stop = Hearing(record=lambda record: running.stop())
        ((_, stopped),) = outcomes(running, [(5, stop, "wait_for_stop")])
        assert isinstance(stopped.exception(), Stopped)
        assert str(stopped.exception()) == "stopped before the first step"

        # The last one is killed while it waits for a job.
        said, running.note = [], lambda text: said.append(text)
        running._alive[0].process.kill()
        while running._alive:
            running.wait()
        assert said[0].endswith("killed by SIGKILL; 0 processes of 2 left")
        with pytest.raises(UserError, match=r"^none of 2 processes is left: process \d: killed by"):
            running.free()
