"""Vectors with their names as files that other programs read, one format per suffix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, unknown, user_path
from nscaching.files import check_new_file, replacing
from nscaching.models import Model, finite
from nscaching.runs.export import binary, parquet, text
from nscaching.runs.export._vectors import Progress, Vectors

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["FORMATS", "Vectors", "export", "load_vectors", "vectors_of"]


class Format(NamedTuple):
    """A way to write vectors."""

    write: Callable[..., None]
    """Write (vectors, progress, *files)."""
    read: Callable[[Path], Vectors]
    """Read from a path; a ValueError, KeyError or OSError says what is wrong."""
    files: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)
    """The files of an export to a path, the path itself first."""


FORMATS = {
    ".safetensors": Format(binary.write_safetensors, binary.read_safetensors),
    ".npz": Format(binary.write_npz, binary.read_npz),
    ".tsv": Format(text.write, text.read, text.files),
    ".parquet": Format(parquet.write, parquet.read),
}


@torch.no_grad()
def vectors_of(model: Model, graph: KnowledgeGraph) -> Vectors:
    """Return the entity vectors as the score uses them, and the relations' parameters."""
    entity, relation = (
        finite(rows.detach().float().cpu()).reshape(len(rows), -1).numpy()
        for rows in (model.table(), model.relation)
    )
    labels = [graph.label(i) for i in range(len(graph.entities))]
    return Vectors(graph.entities, labels, entity, graph.relations, relation)


def export(
    run: Run, path: str | Path, overwrite: bool = False, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Write the vectors with their names as .safetensors, .npz, .tsv or .parquet.

    ``progress`` receives (rows done, rows in all). The files are returned.
    """
    target = user_path(path)
    form = _format(target)
    files = form.files(target)
    for file in files:
        check_new_file(file, flag("to", "path"), overwrite)
    vectors = vectors_of(run.model, run.graph)
    with ExitStack() as stack:  # the files get their names when all are written, the first one last
        partial = [stack.enter_context(replacing(file, shared=True)) for file in files]
        form.write(vectors, progress or (lambda done, of: None), *partial)
    return files


def load_vectors(path: str | Path) -> Vectors:
    """Read what ``export`` wrote: every float and every name unchanged."""
    file = user_path(path)
    form = _format(file)
    try:
        return form.read(file)
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        where = getattr(error, "filename", None) or file
        raise UserError(f"{where}: cannot read the vectors: {reason}") from error


def _format(path: Path) -> Format:
    if path.suffix.lower() not in FORMATS:
        raise unknown("suffix", path.suffix or path.name, FORMATS)
    return FORMATS[path.suffix.lower()]
