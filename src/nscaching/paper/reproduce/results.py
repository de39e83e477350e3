"""The results of finished trainings: a line of JSON each, in one file for each table."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.config import TrainConfig
from nscaching.errors import UserError, reading
from nscaching.files import FolderLock, append_lines, regular_file, sync, writing
from nscaching.paper.published import TABLES, PaperTable
from nscaching.paper.reproduce.plan import PARTS, Cell, Training, fingerprint
from nscaching.runs.checkpoints import Checkpoints

Line = dict[str, Any]
"""A training: its cell, all settings, results, seconds, machine, versions and date."""

NUMBERS = ("seed", "epochs", "train_seconds", "epoch_seconds", "seconds")


@dataclass(frozen=True)
class Result:
    """A finished training, by its line."""

    line: Line
    cell: Cell
    settings: str  # their fingerprint
    data: str  # fingerprint of the data; empty where the line has none
    file: Path

    @classmethod
    def of(cls, line: Line, file: Path) -> Result:
        """Check a line; a setting that the line does not name had its default."""
        cell = Cell(*(line[name] for name in Cell._fields))
        data, epochs = line.get("data_fingerprint", ""), line["settings"]["epochs"]
        numbers = [*(line[name] for name in NUMBERS), *line["test"].values(), epochs]
        texts = [*cell, line["device"], data, line.get("date", "")]
        sound = all(isinstance(number, int | float) for number in numbers)
        if not (sound and all(isinstance(text, str) for text in texts)):
            raise TypeError
        configs = {part: TrainConfig.from_dict(line[part], part) for part in PARTS if part in line}
        return cls(line, cell, fingerprint(configs), data, file)


class Results:
    """All results in a folder that a table can show, the oldest first.

    They come from the files of all tables: a training for one table may serve another.
    """

    def __init__(self, folder: Path, table: PaperTable) -> None:
        self.folder, self.table = folder, table
        self.path = folder / f"{table.name}.jsonl"  # where new results go
        measures = {measure.name for measure in table.measures}
        found = [result for name in TABLES for result in _read(folder / f"{name}.jsonl")]
        self.list = sorted(
            (result for result in found if measures <= result.line["test"].keys()),
            key=lambda result: str(result.line.get("date", "")),
        )
        self.data = {result.cell.data: result.data for result in self.list}
        """Fingerprint of the data that count, by data set: those of the latest result, or of the
        graph where one was loaded."""

    @property
    def counted(self) -> list[Result]:
        """The results on the data that count; results on other data do not compare."""
        return [result for result in self.list if result.data == self.data[result.cell.data]]

    @property
    def left_out(self) -> dict[str, int]:
        return Counter(r.cell.data for r in self.list if r.data != self.data[r.cell.data])

    @property
    def notes(self) -> list[str]:
        counts = self.left_out.items()
        return [f"{name}: {count} trainings on other data are left out" for name, count in counts]

    @property
    def files(self) -> list[Path]:
        """The files that hold the results; where there are none, the file that would."""
        return list(dict.fromkeys(result.file for result in self.list)) or [self.path]

    def missing(self, trainings: Iterable[Training]) -> list[Training]:
        """Return the trainings that are not done with their settings on the data that count."""
        done = {(result.cell, result.line["seed"], result.settings) for result in self.counted}
        return [t for t in trainings if (t.cell, t.config.seed, t.fingerprint) not in done]

    def start_folder(self, training: Training) -> Path:
        return self.folder / "pretrain" / self._name(training)

    def checkpoints(self, training: Training) -> Checkpoints:
        return Checkpoints(self.folder / "unfinished" / self._name(training))

    def clear(self, training: Training) -> None:
        """Remove the checkpoints of a finished training, and the folders that are then empty."""
        run = self.checkpoints(training).folder.parent
        shutil.rmtree(run, ignore_errors=True)
        with suppress(OSError):  # missing, or not empty
            run.parent.rmdir()

    def _name(self, training: Training) -> str:
        """Return a folder name, which differs for other settings and for other data."""
        data, model = training.cell[:2]
        marks = f"{training.fingerprint[:8]}-{self.data.get(data, '')[:8]}"
        return f"{data}-{model}-seed{training.config.seed}-{marks}".lower()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training here, and remove what a killed process left.

        The folder is locked, not the file: tables share starts, checkpoints and lines.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(self.folder)
        try:
            lines = _whole_lines(self.path)
            with writing(self.path), self.path.open("ab") as file:
                file.truncate(len(b"\n".join(lines)))
                if any(lines[-1:]):
                    file.write(b"\n")
            yield
        finally:
            lock.release()

    def add(self, line: Line) -> None:
        """Write a line to the disk itself, before anything else begins."""
        append_lines(self.path, [line])
        sync(self.path)
        self.list.append(Result.of(line, self.path))


def _read(path: Path) -> Iterator[Result]:
    for number, text in enumerate(_whole_lines(path), 1):
        try:
            if text:
                yield Result.of(json.loads(text), path)
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = "not a line of results; remove it to continue"
            raise UserError(f"{path}:{number}: {reason}") from error


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file without the last one if its writing was cut short."""
    with reading(path):
        *lines, last = regular_file(path).read_bytes().split(b"\n") if path.exists() else [b""]
    try:
        json.loads(last or b"0")
    except (ValueError, RecursionError):
        return lines
    return [*lines, last]
