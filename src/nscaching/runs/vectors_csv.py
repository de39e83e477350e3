"""Vectors as CSV: x.csv for entities and x.relations.csv; columns name, label, 0, 1, …"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nscaching.evaluation.ranking import Progress

if TYPE_CHECKING:
    from nscaching.runs.export import Vectors

Table = tuple[list[str], list[str], npt.NDArray[np.float32]]  # names, labels, rows


def write_csv(vectors: Vectors, progress: Progress, entities: Path, relations: Path) -> None:
    done = 0
    for path, names, labels, rows in (
        (relations, vectors.relations, vectors.relations, vectors.relation),
        (entities, vectors.entities, vectors.labels, vectors.entity),
    ):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)  # lines end as the standard says: \r\n
            writer.writerow(["name", "label", *range(rows.shape[1])])
            for name, label, row in zip(names, labels, rows, strict=True):
                # Nine digits tell all float32 apart.
                writer.writerow([name, label, *(f"{number:.9g}" for number in row.tolist())])
        done += len(names)
        progress(done, len(vectors))


def read_table(path: Path) -> Table:
    before = csv.field_size_limit((1 << 31) - 1)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file, strict=True)
    finally:
        csv.field_size_limit(before)
    if header[:2] != ["name", "label"] or {len(line) for line in lines} - {len(header)}:
        raise ValueError(f"{path.name} is no table of name, label and numbers")
    rows = np.array([line[2:] for line in lines], dtype=np.float32)
    names, labels = ([line[i] for line in lines] for i in (0, 1))
    return names, labels, rows.reshape(len(lines), len(header) - 2)
