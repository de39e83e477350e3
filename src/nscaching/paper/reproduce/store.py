"""What was trained: a line of JSON for each training, which outlives any way of being stopped."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from nscaching.errors import UserError
from nscaching.files import FolderLock
from nscaching.paper.reproduce.cells import STARTS_FROM, Cell, Training, fingerprint
from nscaching.paper.reproduce.task import TASKS, Task

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
        self.data: dict[str, str] = {}
        """By data set, the fingerprint of the data that count: those of the latest line, or of the
        graph where one was loaded."""
        self._marks: list[str] = []  # of each line, its fingerprint
        self._done: set[tuple[Cell, str, str]] = set()
        self._file: IO[bytes] | None = None
        # A training serves both tables if what they show was measured.
        found = [entry for name in TASKS for entry in self._read(folder / f"{name}.jsonl")]
        for line, mark, path in sorted(found, key=lambda entry: str(entry[0].get("date", ""))):
            self._keep(line, mark, path)

    def _read(self, path: Path) -> Iterator[tuple[Line, str, Path]]:
        """Give the lines of a file that this task can show, with the fingerprints of settings."""
        whole, _ = _split(path)
        for number, text in enumerate(whole.split(b"\n"), 1):
            if text:
                line, mark = self._parse(path, number, text)
                if all(measure.name in line["test"] for measure in self.task.measures):
                    yield line, mark, path

    def _parse(self, path: Path, number: int, text: bytes) -> tuple[Line, str]:
        try:
            line = json.loads(text)
            texts = [*cell(line)[:-1], line["device"]]
            texts += [line.get(name, "") for name in ("data_fingerprint", "date")]
            sound = all(isinstance(text, str) for text in texts)
            figures = [line[name] for name in FIGURES] + list(line["test"].values())
            figures.append(line["settings"]["epochs"])
            sound &= all(isinstance(value, int | float) for value in figures)
            mark = fingerprint(line)
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path}:{number}: not a line of results; remove it to go on"
            ) from error
        if not sound:
            raise UserError(f"{path}:{number}: not a line of results; remove it to go on")
        return line, mark

    def _keep(self, line: Line, mark: str, path: Path) -> None:
        self.sources[path] = None
        if path == self.path and line["sampler"] not in STARTS_FROM:
            self.own.add((line["data"], line["model"]))
        self.lines.append(line)
        self._marks.append(mark)
        self.data[line["data"]] = data_fingerprint(line)
        self._done.add((cell(line), mark, data_fingerprint(line)))

    def has(self, training: Training) -> bool:
        """Say whether a cell was trained with these settings on the data that count."""
        data = self.data.get(training.cell.data)
        return (training.cell, training.fingerprint, data) in self._done

    def counts(self, line: Line) -> bool:
        """Say whether a line is of the data that count; figures of others do not compare."""
        return data_fingerprint(line) == self.data[line["data"]]

    @property
    def left_out(self) -> dict[str, int]:
        """How many trainings were on other data, by data set."""
        return Counter(line["data"] for line in self.lines if not self.counts(line))

    def place(self, part: str, training: Training) -> Path:
        """Return where in a part of the folder a training has its own."""
        return self.folder / part / training.folder(self.data.get(training.cell.data, ""))

    def __iter__(self) -> Iterator[tuple[Line, str]]:
        """Give each line with the fingerprint of its settings, the oldest first."""
        return zip(self.lines, self._marks, strict=True)

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Keep other processes from training here, and drop what a killed one left.

        The folder is held, not the file: tasks share starts, checkpoints and lines.
        """
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                held.callback(FolderLock(self.folder).release)
                file = held.enter_context(self.path.open("ab"))
            except OSError as error:
                raise UserError(f"{self.folder}: cannot write there: {error.strerror}") from error
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


def data_fingerprint(line: Line) -> str:
    """Return that of the data that a line was trained on."""
    return str(line.get("data_fingerprint", ""))


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
