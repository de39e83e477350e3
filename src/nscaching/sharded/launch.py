"""Start and end of a training by torchrun; what went wrong, in one line of the leading process."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from nscaching.errors import UserError
from nscaching.evaluation.chunks import is_shortage
from nscaching.sharded.torchrun import follows, is_launched, number
from nscaching.sharded.world import FAILED, MOMENT, PLACE, World, read_word

PATIENCE = "NSCACHING_PATIENCE"  # seconds after which a process that does not answer is given up
SECONDS = 300.0
LINGER = 2.0  # seconds in which the leading process can still tell what another one posted

LOST = "lost"  # name of a word in the store, before a rank


@contextmanager
def launched() -> Iterator[World | None]:
    """Yield the world of a process that torchrun started; None: there is no other process."""
    if not is_launched():
        yield None
        return
    with _quiet(follows()):
        world = start()
        try:
            yield world
        except UserError as error:
            _post(world, str(error))
            raise
        except (MemoryError, RuntimeError) as error:
            if is_shortage(error):
                _post(world, "not enough memory")
            elif is_lost(error):
                _post(world, "", LOST)
                raise UserError(_why(world, error)) from error
            raise
        finally:
            end()


@contextmanager
def alone() -> Iterator[World]:
    """Yield a world of this process alone, which reads and writes what several have written."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield World()
    finally:
        end()


def start() -> World:
    """Meet the other processes."""
    rank, size, port = (number(name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    host, cards = os.environ["MASTER_ADDR"], torch.cuda.device_count()
    if cards:
        torch.cuda.set_device(number("LOCAL_RANK", rank) % cards)
    enough = cards >= number("LOCAL_WORLD_SIZE", size)
    patience = timedelta(seconds=_patience())
    # What listens at the port may be another program, which never answers.
    watch = threading.Timer(1.5 * _patience() + LINGER, os._exit, [2])
    watch.daemon = True
    watch.start()
    hosts = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        tcp = TCPStore(host, port, size, hosts, timeout=patience)
        # What is left of the processes before a restart must not be taken for those after it.
        store = PrefixStore(agree(tcp, rank, size, _patience()), tcp)
        backend = "cpu:gloo,cuda:nccl" if enough and cards else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
    except (RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"the {size} processes do not meet at {host} port {port}: {why}") from error
    finally:
        watch.cancel()
    return World(rank, size, store, tcp, backend, on_host=backend == "gloo")


def agree(store: Store, rank: int, size: int, patience: float) -> str:
    """Return a name that only the processes of now know, and not those before a restart.

    Each process says hello by a name of its own; the leading one calls all that it heard by these
    names, until all have answered.
    """
    mine, end = secrets.token_hex(8), time.monotonic() + patience
    store.set(f"hello {rank}", mine)
    others = range(1, size)
    while time.monotonic() < end:
        if rank > 0:
            call = (read_word(store, "call") or "").split()
            if mine in call:
                store.set(f"answer {rank}", f"{call[0]} {mine}")
                return call[0]
        else:
            heard = [read_word(store, f"hello {other}") or "" for other in others]
            store.set("call", " ".join([mine, *heard]))
            answers = [read_word(store, f"answer {other}") for other in others]
            if answers == [f"{mine} {name}" for name in heard]:
                return mine
        time.sleep(MOMENT)
    raise RuntimeError("not all processes have come")


def _patience() -> float:
    text = os.environ.get(PATIENCE, "") or str(SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 1e6:
        raise UserError(f"{PATIENCE} must be at least 1 second, not {text!r}")
    return seconds


def end() -> None:
    with suppress(Exception):  # nothing is left to be done with a group that is broken
        dist.destroy_process_group()


def is_lost(error: BaseException) -> bool:
    """Say whether an error is that of a connection to another process."""
    words = str(error).lower()
    signs = "connection", "timed out", "timeout", "broken pipe", "socket"
    return isinstance(error, RuntimeError) and any(sign in words for sign in signs)


def _post(world: World, message: str, kind: str = FAILED) -> None:
    """Let the leading process tell what happened here; then torchrun may end all processes."""
    with suppress(Exception):
        if world.store is not None:
            world.store.set(f"{kind} {world.rank}", message)
    if world.leads:
        return
    end()
    time.sleep(LINGER)


def _why(world: World, error: Exception) -> str:
    """Say why a process was lost: what it posted, or where the silent ones were last seen."""
    if not world.leads:
        return "another process was lost"
    time.sleep(LINGER / 2)
    silent = []
    for rank in range(1, world.size):
        if (posted := world.read(f"{FAILED} {rank}")) is not None:
            return f"process {rank}: {posted}"
        if world.read(f"{LOST} {rank}") is None:  # else it misses another one too
            silent.append(rank)
    words = str(error).lower()
    late = "timed out" in words or "timeout" in words
    what = f"no answer for {_patience():g} s" if late else "the connection to a process was lost"
    seen = (world.read(f"{PLACE} {rank}") or "the start" for rank in silent)
    last = [f"process {r} was last seen at {at}" for r, at in zip(silent[:3], seen, strict=False)]
    return ": ".join([what, ", ".join(last)] if last else [what])


@contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    if not quiet:
        yield
        return
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield
