"""The text form of word2vec: "count dim", then lines of a name and its numbers."""

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from nscaching.runs.export._vectors import Floats, Format, Progress, Vectors

# Rows between two reports of progress.
PIECE = 4096


class Word2Vec(Format):
    """Two files, since relation vectors may have another length: x.tsv and x.relations.tsv."""

    def files(self, path: Path) -> tuple[Path, ...]:
        """Return the file of the entities and the file of the relations."""
        return path, path.with_name(f"{path.stem}.relations{path.suffix}")

    def write(self, vectors: Vectors, files: Sequence[Path], progress: Progress) -> None:
        """Write both files."""
        of = len(vectors.entities) + len(vectors.relations)
        entities, relations = files
        _write(relations, vectors.relations, vectors.relation, lambda done: progress(done, of))
        before = len(vectors.relations)
        _write(entities, vectors.entities, vectors.entity, lambda done: progress(before + done, of))

    def read(self, path: Path) -> Vectors:
        """Read both files; they have no room for labels."""
        (entities, entity), (relations, relation) = map(_read, self.files(path))
        return Vectors(entities, list(entities), entity, relations, relation)


def encode(name: str) -> str:
    """Write blanks, control characters and "%" as %XX, and an empty name as a lone "%"."""

    def is_plain(c: str) -> bool:
        return not (c == "%" or c.isspace() or unicodedata.category(c) == "Cc")

    return "".join(c if is_plain(c) else quote(c, safe="") for c in name) or "%"


def decode(word: str) -> str:
    """Return the name that ``encode`` was given."""
    return "" if word == "%" else unquote(word, errors="strict")


def _write(path: Path, names: list[str], rows: Floats, done: Callable[[int], None]) -> None:
    line = "%s" + " %.9g" * rows.shape[1] + "\n"  # nine digits tell all float32 apart
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(names)} {rows.shape[1]}\n")
        for begin in range(0, len(names), PIECE):
            some = slice(begin, begin + PIECE)
            for name, row in zip(names[some], rows[some].tolist(), strict=True):
                file.write(line % (encode(name), *row))
            done(min(begin + PIECE, len(names)))


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
