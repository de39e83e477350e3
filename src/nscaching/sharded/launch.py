"""Start and end of a training by torchrun; what went wrong, in one line of the leading process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, TCPStore  # type: ignore[attr-defined]

from nscaching.errors import UserError
from nscaching.sharded.torchrun import follows, is_launched, number, restarts
from nscaching.sharded.world import World

PATIENCE = "NSCACHING_PATIENCE"  # seconds after which a process that does not answer is given up
SECONDS = 300.0
LINGER = 2.0  # seconds in which the leading process can still tell what another one posted

FAILED, PLACE = "failed", "place"  # names in the store, before a rank


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
        except RuntimeError as error:
            if not is_lost(error):
                raise
            raise UserError(_why(world, error)) from error
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
        store = PrefixStore(f"restart {restarts()[0]}", tcp)
        backend = "nccl" if enough and cards else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
        world = World(rank, size, store=store, on_host=backend == "gloo")
        return world.share_memory(_patience()) if world.on_host else world
    except (RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"the {size} processes do not meet at {host} port {port}: {why}") from error
    finally:
        watch.cancel()


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
    signs = "connection", "timed out", "timeout", "broken pipe", "nccl", "gloo", "peer", "socket"
    return isinstance(error, RuntimeError) and any(sign in words for sign in signs)


def _post(world: World, message: str) -> None:
    """Let the leading process tell what happened here; then torchrun may end all processes."""
    if world.store is None or world.leads:
        return
    with suppress(Exception):
        world.store.set(f"{FAILED} {world.rank}", message)
    end()
    time.sleep(LINGER)


def _why(world: World, error: RuntimeError) -> str:
    """Say why a process was lost: what it posted, or where it was last seen."""
    time.sleep(LINGER / 4)
    for rank in range(world.size):
        if (posted := world.read(f"{FAILED} {rank}")) is not None:
            return f"process {rank}: {posted}"
    places = {r: world.read(f"{PLACE} {r}") or "the start" for r in range(world.size)}
    words = str(error).lower()
    late = "timed out" in words or "timeout" in words
    what = f"no answer for {_patience():g} s" if late else "the connection to a process was lost"
    behind = sorted((place, rank) for rank, place in places.items() if rank != world.rank)
    seen = [f"process {rank} was last seen at {place}" for place, rank in behind[:3]]
    return f"{what}: {', '.join(seen)}"


@contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    if not quiet:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            yield
        sys.stdout.flush()
