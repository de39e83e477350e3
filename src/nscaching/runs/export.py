"""Vectors with their names as files that other programs read, one format per suffix."""

from __future__ import annotations

import unicodedata
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import torch

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, unknown, user_path
from nscaching.evaluation.ranking import Progress
from nscaching.files import check_new_file, replacing, write_tensors
from nscaching.models import Model, finite
from nscaching.runs.vectors_csv import read_table, write_csv

if TYPE_CHECKING:
    from nscaching.runs.run import Run

Arrays = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]

NAMES = ("entities", "labels", "relations")
LINES = 4096  # of text between two reports of progress
ROW_GROUP = 65536  # rows of Parquet, converted at once


@dataclass(frozen=True, eq=False)  # arrays have no truth value to compare by
class Vectors:
    """The vectors of a run with their names; row i belongs to name i."""

    entities: list[str]
    labels: list[str]  # readable names of the entities; an entity without one has its name
    entity: Floats  # [|E|, D]
    relations: list[str]
    relation: Floats  # [|R|, D′], where D′ may differ from D

    def __post_init__(self) -> None:
        for rows, *names in (
            (self.entity, self.entities, self.labels),
            (self.relation, self.relations),
        ):
            fits = all(len(some) == len(rows) for some in names)
            if rows.ndim != 2 or rows.dtype != np.float32 or not fits:
                raise ValueError("names and vectors do not fit")

    def __repr__(self) -> str:
        shapes = f"{list(self.entity.shape)}, relations {list(self.relation.shape)}"
        return f"Vectors(entities {shapes})"

    def __len__(self) -> int:
        return len(self.entities) + len(self.relations)


@torch.no_grad()
def vectors_of(model: Model, graph: KnowledgeGraph) -> Vectors:
    """Return the entity vectors as the score uses them, and the relations' parameters."""
    entity, relation = (
        finite(rows.detach().float().cpu()).reshape(len(rows), -1).numpy()
        for rows in (model.table(), model.relation)
    )
    labels = [graph.label(i) for i in range(len(graph.entities))]
    relations = graph.with_inverses().relations if model.reciprocal else graph.relations
    return Vectors(list(graph.entities), labels, entity, relations, relation)


def export(
    run: Run, path: str | Path, overwrite: bool = False, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Write the vectors with their names as .safetensors, .npz, .tsv, .csv or .parquet.

    ``progress`` receives (rows done, rows in all). The files are returned.
    """
    target = user_path(path)
    write, _ = FORMATS[_suffix(target)]
    in_two = write in (write_text, write_csv)
    files: tuple[Path, ...] = text_files(target) if in_two else (target,)
    for file in files:
        check_new_file(file, flag("to", "path"), overwrite)
    if write is write_parquet:
        _pyarrow()  # before anything is made
    vectors = vectors_of(run.model, run.graph)
    with ExitStack() as stack:  # the files get their names when all are written, the first one last
        partial = [stack.enter_context(replacing(file, shared=True)) for file in files]
        write(vectors, progress or (lambda done, of: None), *partial)
    return files


def load_vectors(path: str | Path) -> Vectors:
    """Read what ``export`` wrote: every float and every name unchanged."""
    file = user_path(path)
    _, read = FORMATS[_suffix(file)]
    try:
        return read(file)
    except UserError:
        raise
    except Exception as error:  # every library has its own errors for a damaged file
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        where = getattr(error, "filename", None) or file
        raise UserError(f"{where}: cannot read the vectors: {reason}") from error


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in FORMATS:
        raise unknown("suffix", path.suffix or path.name, FORMATS)
    return path.suffix.lower()


# Arrays unchanged: safetensors, and NumPy's .npz. Nothing is pickled.


def write_safetensors(vectors: Vectors, progress: Progress, path: Path) -> None:
    """Write tensors entity and relation; the names of each kind as UTF-8 bytes and their ends.

    The header could hold strings, but only 100 MB: not enough for millions of names.
    """
    arrays: Arrays = {"entity": vectors.entity, "relation": vectors.relation}
    for kind in NAMES:
        encoded = [name.encode() for name in getattr(vectors, kind)]
        arrays[kind] = np.array(bytearray(b"".join(encoded)), dtype=np.uint8)
        arrays[f"{kind}_end"] = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    write_tensors(path, tensors, {"format": "nscaching vectors"})
    progress(len(vectors), len(vectors))


def read_safetensors(path: Path) -> Vectors:
    from safetensors.numpy import load_file

    arrays, names = load_file(path), {}
    for kind in NAMES:
        text, end = arrays[kind].tobytes(), arrays[f"{kind}_end"].tolist()
        names[kind] = [text[a:b].decode() for a, b in zip([0, *end], end, strict=False)]
    return Vectors(**names, entity=arrays["entity"], relation=arrays["relation"])


def write_npz(vectors: Vectors, progress: Progress, path: Path) -> None:
    """Write what np.savez would, array by array: texts, and rows of numbers.

    NumPy drops NUL at the end of a text, so the lengths of the names are stored too.
    """
    arrays: Arrays = {"entity": vectors.entity, "relation": vectors.relation}
    for kind in NAMES:
        names = getattr(vectors, kind)
        lengths = np.array([len(name) for name in names], dtype=np.int64)
        arrays[kind] = np.array(names, dtype=f"<U{max(1, lengths.max(initial=1))}")
        arrays[f"{kind}_length"] = lengths
    with zipfile.ZipFile(path, "w") as archive:
        for number, (key, array) in enumerate(arrays.items(), 1):
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
            progress(number, len(arrays))


def read_npz(path: Path) -> Vectors:
    # Opened here: NumPy leaves a file open that is no archive.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    names = {}
    for kind in NAMES:
        pairs = zip(arrays[kind].tolist(), arrays[f"{kind}_length"].tolist(), strict=True)
        names[kind] = [name.ljust(length, "\0") for name, length in pairs]
    return Vectors(**names, entity=arrays["entity"], relation=arrays["relation"])


# The text form of word2vec: "count dim", then lines of a name and its numbers. Two files, since
# relation vectors may have another length: x.tsv and x.relations.tsv.


def text_files(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.stem}.relations{path.suffix}")


def write_text(vectors: Vectors, progress: Progress, entities: Path, relations: Path) -> None:
    done = 0
    for path, names, rows in (
        (relations, vectors.relations, vectors.relation),
        (entities, vectors.entities, vectors.entity),
    ):
        line = "%s" + " %.9g" * rows.shape[1] + "\n"  # nine digits tell all float32 apart
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{len(names)} {rows.shape[1]}\n")
            for name, row in zip(names, rows, strict=True):
                file.write(line % (encode(name), *row.tolist()))
                done += 1
                if done % LINES == 0 or done == len(vectors):
                    progress(done, len(vectors))


def read_text(path: Path) -> Vectors:
    """Read both files; they have no room for labels."""
    (entities, entity), (relations, relation) = map(_read_words, text_files(path))
    return Vectors(entities, list(entities), entity, relations, relation)


def _read_words(path: Path) -> tuple[list[str], Floats]:
    with path.open(encoding="utf-8", newline="\n") as file:
        try:
            count, dim = map(int, file.readline().split())
        except ValueError:
            raise ValueError(f"{path.name}, line 1 is not a count and a length") from None
        names, rows = [], np.empty((count, dim), dtype=np.float32)
        for number, line in enumerate(file):
            word, *numbers = line.rstrip("\n").split(" ")
            if number >= count or len(numbers) != dim:
                raise ValueError(f"{path.name}, line {number + 2} does not fit line 1")
            names.append(decode(word))
            rows[number] = [float(each) for each in numbers]
    if len(names) != count:
        raise ValueError(f"{path.name} has {len(names)} vectors where line 1 says {count}")
    return names, rows


def encode(name: str) -> str:
    """Write blanks, control characters and "%" as %XX, and an empty name as a lone "%"."""

    def is_plain(c: str) -> bool:
        return not (c == "%" or c.isspace() or unicodedata.category(c) == "Cc")

    return "".join(c if is_plain(c) else quote(c, safe="") for c in name) or "%"


def decode(word: str) -> str:
    return "" if word == "%" else unquote(word, errors="strict")


def read_csv(path: Path) -> Vectors:
    (entities, labels, entity), (relations, _, relation) = map(read_table, text_files(path))
    return Vectors(entities, labels, entity, relations, relation)


# Parquet, by pyarrow: columns kind ("entity" or "relation"), name, label, and vector.


def _pyarrow() -> ModuleType:
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        cure = 'pip install "nscaching[parquet]"; .safetensors, .npz, .tsv and .csv do without'
        raise UserError(f".parquet needs pyarrow: {cure}") from None
    found: ModuleType = pyarrow
    return found


def write_parquet(vectors: Vectors, progress: Progress, path: Path) -> None:
    pa = _pyarrow()
    columns = [(name, pa.string()) for name in ("kind", "name", "label")]
    schema = pa.schema([*columns, ("vector", pa.list_(pa.float32()))])
    done = 0
    with path.open("wb") as file, pa.parquet.ParquetWriter(file, schema) as writer:
        for kind, names, labels, rows in (
            ("entity", vectors.entities, vectors.labels, vectors.entity),
            ("relation", vectors.relations, vectors.relations, vectors.relation),
        ):
            for begin in range(0, len(names), ROW_GROUP):
                some = slice(begin, begin + ROW_GROUP)
                count = len(names[some])
                cells = [[kind] * count, names[some], labels[some], list(rows[some])]
                writer.write_table(pa.table(cells, schema=schema))
                done += count
                progress(done, len(vectors))


def read_parquet(path: Path) -> Vectors:
    pa = _pyarrow()
    with path.open("rb") as file:  # pyarrow would read the folders of a path as columns
        table = pa.parquet.read_table(file)
    found: list[Any] = []
    for kind in ("entity", "relation"):
        of_kind = table.filter(pa.compute.equal(table["kind"], kind))
        # Part by part: one array of lists is limited to 2³¹ numbers.
        parts = [part.flatten().to_numpy() for part in of_kind["vector"].chunks]
        flat = np.concatenate([np.empty(0, dtype=np.float32), *parts])
        names, labels = (of_kind[column].to_pylist() for column in ("name", "label"))
        found += [names, labels, flat.reshape(len(of_kind), -1)]
    entities, labels, entity, relations, _, relation = found
    return Vectors(entities, labels, entity, relations, relation)


FORMATS: dict[str, tuple[Callable[..., None], Callable[[Path], Vectors]]] = {
    ".safetensors": (write_safetensors, read_safetensors),
    ".npz": (write_npz, read_npz),
    ".tsv": (write_text, read_text),
    ".csv": (write_csv, read_csv),
    ".parquet": (write_parquet, read_parquet),
}
"""How each format is written, (vectors, progress, *files), and read."""
