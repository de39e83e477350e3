"""The jobs of test_processes.py: a module that a new process imports quickly."""

from __future__ import annotations

import os
import time
import warnings

import torch

from nscaching import UserError
from nscaching.training.listener import Stage


def run(shared, name, *given):
    return globals()[name](shared, *given)


def look(shared, listener):
    """Say what this process sees."""
    # The environment that it started with: before any module could have looked for GPUs.
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        started = dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)
    gpu = started.get(b"CUDA_VISIBLE_DEVICES", b"").decode()
    return os.getpid(), gpu, torch.get_num_threads(), shared


def talk(shared, end, listener):
    """Call all methods of a listener, then end as told."""
    listener.begin([{"epoch": 1}])
    listener.announce("numba kernels")
    listener.progress(Stage.FILLING, 1, 2)
    listener.record({"epoch": 2, "mrr": 0.5})
    listener.note("a note")
    if end == "warning":
        warnings.warn("a warning", RuntimeWarning, stacklevel=1)
    if end == "error":
        raise UserError("the loss is nan")
    if end == "bug":
        raise ZeroDivisionError("x / 0")
    return end, listener.stop()


def wait_for_stop(shared, listener):
    listener.record({"epoch": 1})
    until = time.monotonic() + 60
    while not listener.stop():
        assert time.monotonic() < until
        time.sleep(0.01)
    listener.announce("the next training")  # which raises
