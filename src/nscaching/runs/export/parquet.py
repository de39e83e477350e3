"""Parquet, by pyarrow: columns kind ("entity" or "relation"), name, label, and vector."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nscaching.errors import UserError
from nscaching.runs.export._vectors import Floats, Progress, Vectors

# Rows of a row group, converted at once.
PIECE = 65536


def _pyarrow() -> ModuleType:
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            '.parquet needs pyarrow: pip install "nscaching[parquet]"; '
            ".safetensors, .npz and .tsv do without"
        ) from None
    found: ModuleType = pyarrow
    return found


def write(vectors: Vectors, progress: Progress, path: Path) -> None:
    pa = _pyarrow()
    columns = [(name, pa.string()) for name in ("kind", "name", "label")]
    schema = pa.schema([*columns, ("vector", pa.list_(pa.float32()))])
    done = 0
    with path.open("wb") as file, pa.parquet.ParquetWriter(file, schema) as writer:
        for kind, names, labels, rows in (
            ("entity", vectors.entities, vectors.labels, vectors.entity),
            ("relation", vectors.relations, vectors.relations, vectors.relation),
        ):
            for begin in range(0, len(names), PIECE):
                some = slice(begin, begin + PIECE)
                count = len(names[some])
                cells = [[kind] * count, names[some], labels[some], list(rows[some])]
                writer.write_table(pa.table(cells, schema=schema))
                done += count
                progress(done, len(vectors))


def read(path: Path) -> Vectors:
    pa = _pyarrow()
    with path.open("rb") as file:  # pyarrow would read the folders of a path as columns
        table = pa.parquet.read_table(file)
    entity, relation = (
        table.filter(pa.compute.equal(table["kind"], kind)) for kind in ("entity", "relation")
    )
    names, labels, relations = (
        column.to_pylist() for column in (entity["name"], entity["label"], relation["name"])
    )
    return Vectors(names, labels, _rows(entity), relations, _rows(relation))


def _rows(table: Any) -> Floats:  # noqa: ANN401
    """Return the vectors [n, D], part by part: one array of lists is limited to 2³¹ numbers."""
    parts = [part.flatten().to_numpy() for part in table["vector"].chunks]
    flat = np.concatenate([np.empty(0, dtype=np.float32), *parts])
    return flat.reshape(len(table), -1)
