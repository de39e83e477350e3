"""What was trained: a line of JSON for each training, which outlives any way of being stopped."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nscaching.errors import UserError
from nscaching.reproduce.cells import STARTS_FROM, Cell, Training, fingerprint
from nscaching.reproduce.task import TASKS, Task

__all__ = ["Line", "Store", "cell"]

Line = dict[str, Any]
"""A training: its cell, all settings, results, seconds, machine, version and date."""

FIGURES = ("seed", "epochs", "train_seconds", "epoch_seconds", "seconds")


class Store:
    """The lines of a results folder: those of this task are added to, those of others read."""

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder, self.task = folder, task
        self.path = folder / f"{task.name}.jsonl"
        self.lines: list[Line] = []
        self.sources: dict[Path, None] = {}
        """The files of these lines, each once."""
        self.own: set[tuple[str, str]] = set()
        """Data and model of what was trained for this task itself."""
        self._marks: list[str] = []  # of each line, its fingerprint
        self._done: set[tuple[Cell, str]] = set()
        self._file: IO[bytes] | None = None
        for name in TASKS:
            # A training serves both tables if what they show was measured.
            path = folder / f"{name}.jsonl"
            whole, _ = _split(path)
            for number, text in enumerate(whole.split(b"\n"), 1):
                if text:
                    self._take(path, number, text)

    def _take(self, path: Path, number: int, text: bytes) -> None:
        try:
            line = json.loads(text)
            sound = all(isinstance(name, str) for name in (*cell(line)[:-1], line["device"]))
            figures = [line[name] for name in FIGURES] + list(line["test"].values())
            figures.append(line["settings"]["epochs"])
            sound &= all(isinstance(value, int | float) for value in figures)
            mark = fingerprint(line)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not a line of results: {error!r}") from error
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        if not sound:
            raise UserError(f"{path}:{number}: not a line of results")
        if all(measure.name in line["test"] for measure in self.task.measures):
            self._keep(line, mark, path)

    def _keep(self, line: Line, mark: str, path: Path) -> None:
        self.sources[path] = None
        if path == self.path and line["sampler"] not in STARTS_FROM:
            self.own.add((line["data"], line["model"]))
        self.lines.append(line)
        self._marks.append(mark)
        self._done.add((cell(line), mark))

    def has(self, training: Training) -> bool:
        """Say whether a cell was trained with these settings."""
        return (training.cell, training.fingerprint) in self._done

    def __iter__(self) -> Iterator[tuple[Line, str]]:
        """Give each line with the fingerprint of its settings, the oldest first."""
        return zip(self.lines, self._marks, strict=True)

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Keep other processes from adding to this file, and drop what a killed one left."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            opened = self.path.open("ab")
        except OSError as error:
            raise UserError(f"{self.folder}: cannot write there: {error.strerror}") from error
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{self.path}: another process adds to it") from None
            whole, broken = _split(self.path)
            if broken:
                file.truncate(len(whole))
            elif whole and not whole.endswith(b"\n"):
                file.write(b"\n")
            self._file = file
            try:
                yield
            finally:
                self._file = None

    def add(self, line: Line) -> None:
        """Write a line, to the disk itself, before anything else is begun."""
        assert self._file is not None, "only inside adding()"
        self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._keep(line, fingerprint(line), self.path)


def cell(line: Line) -> Cell:
    """Return the cell that a line is of."""
    return Cell(*(line[name] for name in Cell._fields))


def _split(path: Path) -> tuple[bytes, bytes]:
    """Return the whole lines of a file, and what is left of one if its writing was cut short."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from error
    whole, newline, last = content.rpartition(b"\n")
    try:
        json.loads(last or b"0")
    except ValueError:
        return whole + newline, last
    return content, b""
