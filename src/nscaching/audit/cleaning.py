"""A graph without what an audit found, and a graph as a folder of tab-separated files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nscaching.audit.entities import all_triples
from nscaching.audit.overlaps import Flags, Progress, overlaps
from nscaching.audit.relations import relations
from nscaching.audit.splits import blank_nodes, findings, stand_in
from nscaching.data.graph import SPLITS, KnowledgeGraph
from nscaching.data.index import Ids
from nscaching.data.load import LABELS_FILE
from nscaching.data.readers.blocks import CONTROL
from nscaching.data.readers.table import HEADERS
from nscaching.data.splitting import split_triples
from nscaching.errors import UserError, flag, user_path

LONGEST = 1 << 20  # bytes of a name; three of them and their tabs must fit into a line
MARK = "\ufeff"  # at the beginning of a file, it says that the file is UTF-8


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A graph, and how many triples of each split were taken away from it, by reason."""

    graph: KnowledgeGraph
    removed: dict[str, dict[str, int]]


def clean(
    graph: KnowledgeGraph,
    drop_relations: Sequence[str] = (),
    drop_blank_nodes: bool = False,
    drop_leaks: bool = False,
    split_seed: int | None = None,
    progress: Progress | None = None,
) -> Cleaned:
    """Return the graph without repeated triples, and without what the parameters name.

    A triple of several splits stays in the first of them. ``drop_leaks`` takes away the valid and
    test triples that have an inverse or twin in train, which changes what is measured. With
    ``split_seed``, what is left is split anew, as a single file is. Entities and relations without
    a triple are taken away too.
    """
    removed: dict[str, dict[str, int]] = {}

    def without(graph: KnowledgeGraph, reason: str, flags: Sequence[Flags]) -> KnowledgeGraph:
        of_split = dict(zip(SPLITS, flags, strict=True))
        removed[reason] = {split: int(those.sum()) for split, those in of_split.items()}
        kept = {split: graph.split(split)[~those] for split, those in of_split.items()}
        return _with(graph, kept)

    name = graph.name
    for relation in dict.fromkeys(graph.relation_id(name) for name in drop_relations):
        flags = [graph.split(split)[:, 1] == relation for split in SPLITS]
        graph = without(graph, f"relation {graph.relations[relation]}", flags)
    if drop_blank_nodes:
        blank = blank_nodes(graph)
        columns = [graph.split(split)[:, [0, 2]] for split in SPLITS]
        graph = without(graph, "blank nodes", [np.any(blank[ids], axis=1) for ids in columns])
    earlier = [stand_in(graph, SPLITS[:i], graph.split(s)) for i, s in enumerate(SPLITS)]
    graph = without(graph, "in an earlier split too", earlier)
    if split_seed is not None:
        graph = _with(graph, split_triples(all_triples(graph), split_seed))
    if drop_leaks:
        graph = without(graph, "inverse or twin in train", _leaks(graph, progress))
    if not len(graph.train):
        raise UserError(f"nothing of the train split of {name} would be left")
    return Cleaned(_renumbered(graph), removed)


def _leaks(graph: KnowledgeGraph, progress: Progress | None) -> list[Flags]:
    report = progress or (lambda what, done, of: None)
    known = overlaps(all_triples(graph), len(graph.entities), len(graph.relations), report)
    found = findings(graph, relations(graph, known), report)
    none = np.zeros(len(graph.train), dtype=bool)  # of train, where every second one would go
    return [none, *(found[split]["leaking"] for split in ("valid", "test"))]


def _with(graph: KnowledgeGraph, splits: dict[str, Ids]) -> KnowledgeGraph:
    return KnowledgeGraph.from_arrays(
        graph.entities, graph.relations, splits, name=graph.name, labels=graph.labels
    )


def _renumbered(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Return the graph without the names that have no triple."""
    triples = all_triples(graph)
    entities, relations = np.unique(triples[:, [0, 2]]), np.unique(triples[:, 1])
    splits: dict[str, Ids] = {}
    for split in SPLITS:
        columns = graph.split(split).T
        numbers = (entities, relations, entities)
        found = [np.searchsorted(of, ids) for of, ids in zip(numbers, columns, strict=True)]
        splits[split] = np.stack(found, axis=1).astype(np.int32)
    names = [graph.entities[i] for i in entities], [graph.relations[i] for i in relations]
    used = set(names[0]) | set(names[1])
    labels = {name: label for name, label in graph.labels.items() if name in used}
    return KnowledgeGraph.from_arrays(*names, splits, name=graph.name, labels=labels)


def save(graph: KnowledgeGraph, folder: str | Path) -> Path:
    """Write a graph as train.tsv, valid.tsv, test.tsv and entity_labels.tsv; return the folder.

    The folder must not exist. An empty split gets no file. Labels are written on one line.
    """
    target = user_path(folder)
    check_new_folder(target)
    for kind, names in (("entity", graph.entities), ("relation", graph.relations)):
        for name in names:
            if reason := _unwritable(name):
                raise UserError(f"the {kind} {name!r} has no place in a table: {reason}")
    texts = {f"{s}.tsv": _lines(graph, graph.split(s)) for s in SPLITS if len(graph.split(s))}
    labels = [(n, " ".join(CONTROL.sub(" ", label).split())) for n, label in graph.labels.items()]
    texts[LABELS_FILE] = "".join(f"{n}\t{label}\n" for n, label in labels if label and label != n)
    new = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        new.mkdir(parents=True)
        for file, text in texts.items():
            if text:
                (new / file).write_text(text, encoding="utf-8", newline="\n")
        new.rename(target)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if not isinstance(error, OSError | UnicodeError):  # UnicodeError: a label not in UTF-8
            raise
        raise UserError(
            f"cannot write {target}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return target


def check_new_folder(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists already; choose another {flag('clean', 'folder')}")


def _lines(graph: KnowledgeGraph, triples: Ids) -> str:
    rows = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples]
    # A first line such as "head, relation, tail" would be taken for a header, so it gets one.
    header = tuple(name.strip(" ").lower() for name in rows[0]) in HEADERS
    return "".join("\t".join(row) + "\n" for row in [("head", "relation", "tail")] * header + rows)


def _unwritable(name: str) -> str:
    """Say why a reader of tables would not read a name unchanged; empty if it would."""
    if not name.strip() or name != name.strip(" "):
        return "it is blank, or has spaces around it"
    if CONTROL.search(name) or "\t" in name or "\n" in name:
        return "it has a control character"
    if name.startswith(MARK):
        return "it begins with the mark of UTF-8 files"
    try:
        return "it is too long" if len(name.encode()) > LONGEST else ""
    except UnicodeEncodeError:
        return "it is not UTF-8"
