"""Vectors with their names as files that other programs read, one format per suffix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from nscaching.errors import UserError, unknown, user_path, flag
from nscaching.runs.export import binary, parquet, text
from nscaching.runs.export._vectors import Format, Progress, Vectors
from nscaching.files import PARTIAL, free_path
from nscaching.data.graph import KnowledgeGraph
from nscaching.models import Model, finite

__all__ = ["FORMATS", "Vectors", "export", "load_vectors", "vectors_of"]

FORMATS: dict[str, Format] = {
    ".safetensors": binary.Safetensors(),
    ".npz": binary.Npz(),
    ".tsv": text.Word2Vec(),
    ".parquet": parquet.Parquet(),
}


@torch.no_grad()
def vectors_of(model: Model, graph: KnowledgeGraph) -> Vectors:
    """Return the rows with which entities enter the score, and the relations' own parameters."""
    entity, relation = (
        finite(rows.detach().float().cpu()).reshape(len(rows), -1).numpy()
        for rows in (model.table(), model.relation)
    )
    labels = [graph.label(i) for i in range(len(graph.entities))]
    return Vectors(graph.entities, labels, entity, graph.relations, relation)


def export(
    model: Model,
    graph: KnowledgeGraph,
    path: str | Path,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Write the vectors in the format that the suffix says; return the files.

    They get their names when they are whole. ``progress`` hears (rows done, rows in all).
    """
    target = user_path(path)
    form = _format(target)
    form.check()
    files = form.files(target)
    for file in files:
        if file.is_dir():
            raise UserError(f"{file} is a folder; {flag('to', 'path')} names a file")
        if not overwrite and (file.exists() or file.is_symlink()):
            raise UserError(
                f"{file} exists already; choose another {flag('to', 'path')}, or say "
                f"{flag('overwrite', 'overwrite=True')}"
            )
    vectors = vectors_of(model, graph)
    unfinished: Sequence[Path] = ()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = [free_path(file.with_name(file.name + PARTIAL)) for file in files]
        form.write(vectors, unfinished, progress or (lambda done, of: None))
        for temporary, file in zip(reversed(unfinished), reversed(files), strict=True):
            os.replace(temporary, file)  # noqa: PTH105  (the name says that it replaces)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or target}: {error.strerror or error}"
        ) from error
    finally:
        for temporary in unfinished:
            temporary.unlink(missing_ok=True)
    return files


def load_vectors(path: str | Path) -> Vectors:
    """Read what ``export`` wrote: every float and every name as it was."""
    file = user_path(path)
    form = _format(file)
    form.check()
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
