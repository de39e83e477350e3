"""Messages between the processes of one machine, by memory that they share.

A message by a socket takes a hundred microseconds or more, most of them in the operating system.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from nscaching.sharded.world import World

Bytes = npt.NDArray[np.uint8]

ROOM, MOST = 1 << 23, 1 << 28  # bytes of a message and of a board, at most
# Stores reach other processors in the order of the program: what says that a message is whole is
# seen after the message.
ORDERED = ("x86_64", "AMD64")
AWAKE, NAP = 0.05, 0.001  # seconds; a process that waits longer sleeps now and then

give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
"""Lets another process run. Processes that sleep are often woken on one and the same CPU."""


class Board:
    """Places for two messages of each rank: one is read while the next one is written.

    A rank writes its third message when it has read the second ones of all others, who have read
    the first then.
    """

    def __init__(self, file: BinaryIO, rank: int, ranks: int, patience: float) -> None:
        self.file, self.rank, self.patience = file, rank, patience
        # A rank that ends, however it ends, loses its lock.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        memory = np.frombuffer(mmap.mmap(file.fileno(), size_of(ranks)), np.uint8)
        head = 64 * ranks  # the number of the latest message of each rank, apart from each other
        self.latest = memory[:head].view(np.int64)[::8]
        places = memory[head:].reshape(ranks, 2, -1)
        self.bounds = places[:, :, : 16 * ranks].view(np.int64).reshape(ranks, 2, ranks, 2)
        self.room, self.number = places[:, :, 16 * ranks :], 0

    def holds(self, size: int) -> bool:
        return bool(size <= self.room.shape[2])

    def write(self, message: Bytes, bounds: Sequence[tuple[int, int]]) -> None:
        """Write a message, of which each rank gets the bytes between its two bounds.

        A message that is too long has no bytes for anybody, and bounds below zero.
        """
        self.number += 1
        where = self.rank, self.number % 2
        if self.holds(len(message)):
            self.room[where][: len(message)] = message
            self.bounds[where] = bounds
        else:
            self.bounds[where] = -1
        self.latest[self.rank] = self.number

    def read(self, rank: int) -> Bytes | None:
        """Return what a rank has for this one; None: its message is too long."""
        self._wait(rank)
        first, last = self.bounds[rank, self.number % 2, self.rank].tolist()
        return None if first < 0 else self.room[rank, self.number % 2, first:last]

    def _wait(self, rank: int) -> None:
        began = time.perf_counter()
        while self.latest[rank] < self.number:
            give_way()
            passed = time.perf_counter() - began
            if passed > AWAKE:
                time.sleep(NAP)
                self._check(rank)
            if passed > self.patience:
                raise RuntimeError(f"process {rank} timed out")

    def _check(self, rank: int) -> None:
        with suppress(OSError):  # the process has its lock
            fcntl.lockf(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, rank)
            if self.latest[rank] < self.number:
                raise RuntimeError(f"the connection to process {rank} is lost")


def size_of(ranks: int) -> int:
    room = min(ROOM, MOST // (2 * ranks)) // 64 * 64
    return 64 * ranks + 2 * ranks * (16 * ranks + room)


def new_board(world: World, patience: float) -> Board | None:
    """Return a board of all ranks; None: they are not on one machine, or it has no room for one."""
    if world.size == 1:
        return None
    able = platform.machine() in ORDERED and hasattr(os, "memfd_create")
    mark, file, there = os.urandom(8), None, False
    if able and world.leads:
        file = _new_file(size_of(world.size), mark)
    path = file and f"/proc/{os.getpid()}/fd/{file.fileno()}"
    path, mark = world.gather((path, mark))[0]
    if able and path:
        with suppress(OSError):
            file = file or Path(path).open("r+b")  # noqa: SIM115
            there = os.pread(file.fileno(), 8, 0) == mark  # not the file of another machine
    if not all(world.gather(there)) or file is None:
        return None
    board = Board(file, world.rank, world.size, patience)
    world.wait()  # until all have seen the mark and have their locks
    board.latest[world.rank] = 0
    world.wait()
    return board


def _new_file(size: int, mark: bytes) -> BinaryIO | None:
    """Make a file in memory, which has no name, and so ends with the processes that have it."""
    try:
        file = os.fdopen(os.memfd_create("nscaching"), "r+b")
        os.posix_fallocate(file.fileno(), 0, size)  # a memory that is full is an error now
        os.pwrite(file.fileno(), mark, 0)
    except OSError:
        return None
    return file
