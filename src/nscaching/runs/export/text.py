"""The text form of word2vec: "count dim", then lines of a name and its numbers.

Two files, since relation vectors may have another length: x.tsv and x.relations.tsv.
"""

import unicodedata
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from nscaching.runs.export._vectors import Floats, Progress, Vectors

# Rows between two reports of progress.
PIECE = 4096


def files(path: Path) -> tuple[Path, ...]:
    return path, path.with_name(f"{path.stem}.relations{path.suffix}")


def write(vectors: Vectors, progress: Progress, entities: Path, relations: Path) -> None:
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
                if done % PIECE == 0 or done == len(vectors):
                    progress(done, len(vectors))


def read(path: Path) -> Vectors:
    """Read both files; they have no room for labels."""
    (entities, entity), (relations, relation) = map(_read, files(path))
    return Vectors(entities, list(entities), entity, relations, relation)


def encode(name: str) -> str:
    """Write blanks, control characters and "%" as %XX, and an empty name as a lone "%"."""

    def is_plain(c: str) -> bool:
        return not (c == "%" or c.isspace() or unicodedata.category(c) == "Cc")

    return "".join(c if is_plain(c) else quote(c, safe="") for c in name) or "%"


def decode(word: str) -> str:
    return "" if word == "%" else unquote(word, errors="strict")


def _read(path: Path) -> tuple[list[str], Floats]:
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
