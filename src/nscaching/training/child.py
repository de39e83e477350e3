"""The other side of ``processes.py``: a process that runs one job after the other."""

import gc
import os
import queue
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from multiprocessing import connection
from typing import Any

import torch

from nscaching.errors import Stopped, UserError, naming_flags
from nscaching.training.listener import Listener, Stage

TELL = 0.2  # seconds between two reports of progress

Job = Callable[..., Any]
"""Called with what all jobs share, what this one is given, and a listener."""


class Parent(Listener):
    """The parent's listener, through a pipe. Its calls wait for an answer, but for progress."""

    def __init__(self, pipe: connection.Connection) -> None:
        self.pipe = pipe
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.asked, self._sending = threading.Event(), threading.Lock()
        self.raised: Exception | None = None  # by the parent's listener
        self._next = 0.0
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                kind, *content = self.pipe.recv()
                if kind == "stop":
                    self.asked.set()
                else:
                    self.inbox.put(content[0])
        os._exit(1)  # the parent is gone

    def send(self, *message: object) -> None:
        try:
            with self._sending:
                self.pipe.send(message)
        except OSError:
            os._exit(1)

    def _call(self, name: str, *given: object) -> None:
        self.send("call", name, *given)
        self.raised = self.inbox.get()
        if self.raised is not None:
            raise self.raised

    def begin(self, history: list[dict[str, Any]]) -> None:
        self._call("begin", history)

    def announce(self, text: str) -> None:
        self._call("announce", text)
        self._before_first_step()

    def record(self, record: dict[str, Any]) -> None:
        self._call("record", record)

    def note(self, text: str) -> None:
        self._call("note", text)

    def progress(self, stage: Stage, done: int, total: int) -> None:
        if stage is Stage.FILLING:
            self._before_first_step()
        if time.monotonic() > self._next:
            self._next = time.monotonic() + TELL
            self.send("tell", "progress", stage, done, total)

    def stop(self) -> bool:
        return self.asked.is_set()

    def _before_first_step(self) -> None:
        if self.stop():
            raise Stopped("stopped before the first step")


def work(pipe: connection.Connection, threads: int) -> None:
    """Run jobs until the parent ends this process."""
    torch.set_num_threads(threads)
    try:
        pipe.send(("ready",))
        job, shared, named = pipe.recv()
    except (EOFError, OSError):  # the parent is gone
        return
    except Exception as error:
        pipe.send(_bug(error))
        return
    parent = Parent(pipe)
    warnings.showwarning = lambda text, kind, *_, **__: parent.send("warning", str(text), kind)
    while True:
        given = parent.inbox.get()
        with naming_flags() if named else nullcontext():
            parent.send(*_outcome(parent, job, *shared, *given))
        gc.collect()  # cycles of a finished training hold memory, that of a GPU too
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _outcome(parent: Parent, job: Job, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401
    try:
        return "end", job(*given, parent)
    except (UserError, Stopped) as error:
        return "raised", error
    except BaseException as error:
        return ("raised", error) if error is parent.raised else _bug(error)


def _bug(error: BaseException) -> tuple[str, str, str]:
    trace = "".join(traceback.format_exception(error))
    return "bug", f"{type(error).__name__}: {error}", trace
