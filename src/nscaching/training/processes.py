"""Trainings at the same time, each in an operating-system process with a GPU of its own.

The parent alone decides and writes results. A process runs one job after the other and calls the
parent's listener through a pipe; the end of the pipe is the end of the process, however the parent
ended.
"""

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Self

import torch

from nscaching.errors import UserError, check_bounds, counted, flag
from nscaching.training.child import Job, work
from nscaching.training.listener import Listener

MOST = 1024
TICK = 0.2  # seconds between two looks at the signals
VISIBLE = "CUDA_VISIBLE_DEVICES"
SPAWN = get_context("spawn")  # a fork would inherit the parent's use of a GPU
BLOCKED = (signal.SIGINT, signal.SIGTERM)  # which reach a whole group: the parent answers them

Ended = tuple[Any, Future[Any]]
"""What the caller names a job by, and its outcome."""


class ProcessLostError(Exception):
    """A process ended in the middle of its job, such as by SIGKILL."""


class Here:
    """Runs a job in this process, the plain twin of ``Processes``."""

    count, where = 1, ""

    def __init__(self, job: Job, *shared: Any) -> None:  # noqa: ANN401
        self.job, self.shared = job, shared
        self._ended: list[Ended] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def busy(self) -> int:
        return len(self._ended)

    def free(self) -> Self | None:
        return None if self._ended else self

    def begin(self, name: object, listener: Listener, *given: Any) -> None:  # noqa: ANN401
        future: Future[Any] = Future()
        try:
            future.set_result(self.job(*self.shared, *given, listener))
        except BaseException as error:  # raised where the outcome is asked for
            future.set_exception(error)
        self._ended.append((name, future))
        del future  # the traceback holds this frame: a cycle would keep the memory of a training

    def wait(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def stop(self) -> None:
        """A job of this process asks its listener."""


def how_many(processes: int, devices: Sequence[str]) -> int:
    """Return the number of processes; 0 stands for one for each visible GPU, and one on a CPU."""
    check_bounds("processes", processes, 0, MOST)
    return processes or max(1, len(gpus_of(devices)))


def gpus_of(devices: Sequence[str]) -> list[str]:
    """Return the visible GPUs, as CUDA_VISIBLE_DEVICES names them, if trainings would use them."""
    if all(device == "cpu" for device in devices) or not torch.cuda.is_available():
        return []
    count, given = torch.cuda.device_count(), os.environ.get(VISIBLE)
    names = map(str, range(count)) if given is None else given.split(",")
    return [name.strip() for name in names][:count]


def places(count: int, gpus: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return a name for each process, and its GPU."""
    if not gpus:
        return [(f"process {i}", None) for i in range(1, count + 1)]
    given = [gpus[i % len(gpus)] for i in range(count)]
    if count > len(gpus):
        return [(f"process {i} on GPU {gpu}", gpu) for i, gpu in enumerate(given, 1)]
    return [(f"GPU {gpu}", gpu) for gpu in given]


def pool(
    count: int,
    devices: Sequence[str],
    note: Callable[[str], None],
    job: Job,
    *shared: Any,  # noqa: ANN401
) -> "Here | Processes":
    """Return what runs jobs, ``count`` of them at the same time; ``note`` hears what went wrong.

    ``job`` is a function of a module, and all that it gets can be pickled.
    """
    if count == 1:
        return Here(job, *shared)
    return Processes(places(count, gpus_of(devices)), note, job, *shared)


@dataclass
class Process:
    """A process that runs one job after the other."""

    where: str
    process: BaseProcess
    pipe: connection.Connection
    ready: bool = False
    job: tuple[Any, Listener, Future[Any]] | None = None

    def begin(self, name: object, listener: Listener, *given: Any) -> None:  # noqa: ANN401
        self.job = name, listener, Future()
        self.send("job", given)

    def send(self, *message: object) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the next ``wait`` finds that out
            self.pipe.send(message)


class Processes:
    """Runs jobs in as many processes as there are places.

    A process that ended is not replaced: whatever killed it, such as a lack of memory, would meet
    the next one too.
    """

    def __init__(
        self,
        places: Sequence[tuple[str, str | None]],
        note: Callable[[str], None],
        job: Job,
        *shared: Any,  # noqa: ANN401
    ) -> None:
        self.count, self.note = len(places), note
        self._named = flag("a") != "a"  # whether messages name flags
        self._shared = ForkingPickler.dumps((job, shared, self._named))
        self._places, self._alive = places, list[Process]()
        self._ended: list[Ended] = []
        self._last = ""  # how the last process that was lost ended

    def __enter__(self) -> Self:
        threads = max(1, torch.get_num_threads() // self.count)
        resource_tracker.ensure_running()  # it would undo the mask below
        try:
            for where, gpu in self._places:
                ours, theirs = SPAWN.Pipe()
                process = SPAWN.Process(target=work, args=(theirs, threads), daemon=True)
                with _blocked(), _environment(gpu):
                    process.start()
                    self._alive.append(Process(where, process, ours))
                theirs.close()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes at once: what they write is whole at any moment."""
        for one in self._alive:
            one.process.kill()
        for one in self._alive:
            one.process.join()
            one.pipe.close()
        self._alive = []

    @property
    def busy(self) -> int:
        return sum(one.job is not None for one in self._alive) + len(self._ended)

    def free(self) -> Process | None:
        """Return a process that waits for a job, if one does."""
        if not self._alive:
            raise UserError(f"none of {self.count} processes is left: {self._last}")
        idle = (one for one in self._alive if one.ready and one.job is None)
        return next(idle, None)

    def wait(self) -> list[Ended]:
        """Serve the processes; return the jobs that ended, perhaps none, after a while."""
        by_pipe = {one.pipe: one for one in self._alive}
        for pipe in connection.wait(list(by_pipe), TICK):
            self._hear(by_pipe[pipe])  # type: ignore[index]
        ended, self._ended = self._ended, []
        return ended

    def stop(self) -> None:
        """Let the listener of each job ask for a stop after the present step."""
        for one in self._alive:
            if one.ready:  # the first message to a process is another
                one.send("stop")

    def _hear(self, one: Process) -> None:
        try:
            kind, *content = one.pipe.recv()
        except (EOFError, OSError):
            self._lost(one)
            return
        if kind == "ready":
            one.ready = True
            with suppress(BrokenPipeError, ConnectionResetError):  # as in ``send``
                one.pipe.send_bytes(self._shared)
        elif kind == "warning":
            text, category = content
            warnings.warn(text, category, stacklevel=2)
        elif kind == "bug":
            line, trace = content
            more = "; --debug shows where" if self._named else ""
            raise UserError(f"{one.where}: {line}{more}") from _RemoteTracebackError(trace)
        elif one.job is not None:
            name, listener, future = one.job
            if kind in ("call", "tell"):
                error = _call(listener, *content)
                if kind == "call":
                    one.send("answer", error)
                return
            one.job = None
            future.set_result(content[0]) if kind == "end" else future.set_exception(content[0])
            self._ended.append((name, future))

    def _lost(self, one: Process) -> None:
        self._alive.remove(one)
        one.pipe.close()
        one.process.kill()  # it may have closed the pipe and live on
        one.process.join()
        code, left = one.process.exitcode or 0, counted(len(self._alive), "process", "processes")
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if not one.ready:
            how += ' at its start: does the script guard its calls by __name__ == "__main__"?'
        self._last = f"{one.where}: {how}"
        lost = f"{self._last}; {left} of {self.count} left"
        if one.job is None:
            self.note(lost)
            return
        name, _, future = one.job
        future.set_exception(ProcessLostError(lost))
        self._ended.append((name, future))


def _call(listener: Listener, name: str, *given: object) -> Exception | None:
    """Call a method of a listener; an exception goes to the process, where it ends the job."""
    try:
        getattr(listener, name)(*given)
    except Exception as error:
        return error
    return None


class _RemoteTracebackError(Exception):
    """The traceback of another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@contextmanager
def _blocked() -> Iterator[None]:
    """Block signals, which a process that starts here inherits; this one gets them later."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(gpu: str | None) -> Iterator[None]:
    """Let a process that starts here see one GPU, before any of its modules looks for GPUs."""
    before = os.environ.get(VISIBLE)
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    try:
        yield
    finally:
        if gpu is not None:
            os.environ.pop(VISIBLE)
            if before is not None:
                os.environ[VISIBLE] = before
