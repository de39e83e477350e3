"""Parquet, by pyarrow: a row for each vector, with its kind, name and label."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.errors import UserError
from nscaching.runs.export._vectors import Floats, Format, Progress, Vectors

# Rows of a row group, converted at once.
PIECE = 65536


class Parquet(Format):
    """Columns kind ("entity" or "relation"), name, label, and vector as a list of floats."""

    def check(self) -> None:
        """Refuse if pyarrow is not installed; it is an extra."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise UserError(
                '.parquet needs pyarrow: pip install "nscaching[parquet]"; '
                ".safetensors, .npz and .tsv do without"
            ) from None

    def write(self, vectors: Vectors, files: Sequence[Path], progress: Progress) -> None:
        """Write one file, some rows at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = [(name, pa.string()) for name in ("kind", "name", "label")]
        schema = pa.schema([*columns, ("vector", pa.list_(pa.float32()))])
        done, of = 0, len(vectors.entities) + len(vectors.relations)
        with files[0].open("wb") as file, pq.ParquetWriter(file, schema) as writer:
            for kind, names, labels, rows in (
                ("entity", vectors.entities, vectors.labels, vectors.entity),
                ("relation", vectors.relations, vectors.relations, vectors.relation),
            ):
                for begin in range(0, len(names), PIECE):
                    some = slice(begin, begin + PIECE)
                    count = len(names[some])
                    columns_of = [[kind] * count, names[some], labels[some], _lists(rows[some])]
                    writer.write_table(pa.table(columns_of, schema=schema))
                    done += count
                    progress(done, of)

    def read(self, path: Path) -> Vectors:
        """Read the file."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with path.open("rb") as file:  # pyarrow would read the folders of a path as columns
            table = pq.read_table(file)
        entity, relation = (
            table.filter(pc.equal(table["kind"], kind)) for kind in ("entity", "relation")
        )
        names, labels, relations = (
            column.to_pylist() for column in (entity["name"], entity["label"], relation["name"])
        )
        return Vectors(names, labels, _rows(entity), relations, _rows(relation))


def _lists(rows: Floats) -> Any:  # noqa: ANN401  (an array of pyarrow's)
    import pyarrow as pa

    ends = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(ends, np.ascontiguousarray(rows).ravel())


def _rows(table: Any) -> Floats:  # noqa: ANN401
    """Return the vectors [n, D], part by part: one array of lists is limited to 2³¹ numbers."""
    parts = [part.flatten().to_numpy() for part in table["vector"].chunks]
    flat = np.concatenate([np.empty(0, dtype=np.float32), *parts])
    return flat.reshape(len(table), -1)
