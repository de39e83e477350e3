"""Vectors with their names as files that other programs read, one format per suffix."""

from contextlib import ExitStack
from pathlib import Path

import torch

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag, unknown, user_path
from nscaching.files import replacing, writing
from nscaching.models import Model, finite
from nscaching.runs.export import binary, parquet, text
from nscaching.runs.export._vectors import Format, Progress, Vectors

__all__ = ["FORMATS", "Vectors", "export", "load_vectors", "vectors_of"]

FORMATS: dict[str, Format] = {
    ".safetensors": binary.Safetensors(),
    ".npz": binary.Npz(),
    ".tsv": text.Word2Vec(),
    ".parquet": parquet.Parquet(),
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
    model: Model,
    graph: KnowledgeGraph,
    path: str | Path,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Write the vectors in the format of the suffix; return the files.

    ``progress`` receives (rows done, rows in all).
    """
    target = user_path(path)
    form = _format(target)
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
    with writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # the files get their names when all are written, the first one last
        partial = [stack.enter_context(replacing(file, shared=True)) for file in files]
        form.write(vectors, partial, progress or (lambda done, of: None))
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
    """Return the format of a suffix, if the packages it needs are installed."""
    if path.suffix.lower() not in FORMATS:
        raise unknown("suffix", path.suffix or path.name, FORMATS)
    form = FORMATS[path.suffix.lower()]
    form.check()
    return form
