"""Files of names → triples of a split, or false ones, which have no names of their own."""

from itertools import islice
from pathlib import Path

import numpy as np

from nscaching.data.graph import Labelled
from nscaching.data.index import Ids
from nscaching.data.readers.blocks import Progress
from nscaching.data.readers.rdf import RdfReader, is_rdf
from nscaching.data.readers.table import line_naming, read_triples
from nscaching.errors import UserError, unknown

COLUMNS = {"entity": (0, 2), "relation": (1,)}


def read_named(path: Path, rdf: RdfReader, progress: Progress | None = None) -> Ids:
    """Read a table or an RDF file into ids [n, 3], adding new names to the tables of ``rdf``."""
    if is_rdf(path):
        return rdf.read(path, progress)
    return read_triples(path, rdf.entities, rdf.relations, rdf.notes, progress)


def read_negatives(path: Path, rdf: RdfReader, progress: Progress | None = None) -> Labelled:
    """Read false triples; refuse a name that the tables of ``rdf`` do not have."""
    tables = {"entity": rdf.entities, "relation": rdf.relations}
    sizes = {kind: len(table) for kind, table in tables.items()}
    triples = read_named(path, rdf, progress)
    new = sum(len(table) - sizes[kind] for kind, table in tables.items())
    for kind, table in tables.items():
        for name in islice(table, sizes[kind], None):
            line = (
                rdf.line_naming(path, name)
                if is_rdf(path)
                else line_naming(path, name, COLUMNS[kind])
            )
            raise unknown_in(path, line, unknown(kind, name, islice(table, sizes[kind])), new)
    return all_false(triples, path)


def unknown_in(path: Path, line: int | None, error: UserError, new: int) -> UserError:
    """Return the error for the first of ``new`` names of a file that no split has."""
    where = f"{path}:{line}" if line else str(path)
    more = f"; {new - 1:,} more of its names are unknown" if new > 1 else ""
    return UserError(f"{where}: {error}{more}")


def all_false(triples: Ids, path: Path) -> Labelled:
    return Labelled(triples, np.zeros(len(triples), dtype=bool), path.name)
