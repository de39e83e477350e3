"""Load a KnowledgeGraph: by a known name, from a folder of splits, or from a file of triples."""

from pathlib import Path
from typing import Any

from nscaching.data import datasets
from nscaching.data.graph import SPLITS, KnowledgeGraph, Source
from nscaching.data.index import Ids, distinct
from nscaching.data.readers.blocks import Progress
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.openke import read_openke_ids, read_openke_labelled, read_openke_names
from nscaching.data.readers.rdf import RDF_SUFFIXES, RdfReader, is_rdf
from nscaching.data.readers.table import TABLE_SUFFIXES, read_labels, read_triples
from nscaching.data.split import split_triples
from nscaching.errors import UserError, flag, unknown, user_path

WORLD = Path(__file__).parent / "world"
LABELS_FILE = "entity_labels.tsv"
OPENKE_SUFFIXES = (".txt",)


def load_graph(
    where: str | Path,
    labels: str | Path = "",
    split_seed: int = 0,
    literals: bool = False,
    progress: Progress | None = None,
) -> KnowledgeGraph:
    """Load a graph; see ``KnowledgeGraph.load``."""
    text = str(where)
    if split_seed < 0:
        raise UserError(f"{flag('split_seed')} must be at least 0, not {split_seed}")
    known = datasets.find(text)
    if text.casefold() == "world":
        path, name, source = WORLD, "world", "world"
    elif known is not None:
        path, name, source = datasets.fetch(known.name), known.name, known.name
    else:
        path = user_path(where)
        name, source = _name(path), str(path.resolve())
    parts: dict[str, Any]
    if path.is_dir() and _find(path, "train2id", OPENKE_SUFFIXES):
        parts = _openke_folder(path, progress)
    elif path.is_dir():
        parts = _folder(path, split_seed, _Reader(literals, progress))
    elif path.exists():
        parts = _single_file(path, split_seed, _Reader(literals, progress))
    elif path.suffix or len(path.parts) > 1:
        raise UserError(f"{path}: no such file or folder")
    else:
        known_names = ["world", *datasets.KNOWN]
        raise UserError(
            f"{unknown('data set', text, known_names)}; and no file or folder is called so"
        )
    beside = (path if path.is_dir() else path.parent) / LABELS_FILE
    labels_file = user_path(labels).resolve() if labels else None
    if labels_file or beside.exists():
        given = read_labels(labels_file or beside)
        parts["labels"] = parts.get("labels", {}) | given
        if given.keys().isdisjoint(parts["entities"]):
            parts["notes"].append(f"{labels_file or beside} labels no entity of these data")
    parts["source"] = Source(source, str(labels_file or ""), split_seed, literals)
    return KnowledgeGraph.from_arrays(**parts, name=name)


class _Reader:
    """Reads files of triples, of any format, into shared tables of names."""

    def __init__(self, literals: bool, progress: Progress | None) -> None:
        self.entities, self.relations = NameTable(), NameTable()
        self.rdf = RdfReader(self.entities, self.relations, literals)
        self.notes = self.rdf.notes
        self.progress = progress
        self.has_rdf = False

    def read(self, path: Path) -> Ids:
        """Return the triples [n, 3] of a file."""
        if is_rdf(path):
            self.has_rdf = True
            return self.rdf.read(path, self.progress)
        return read_triples(path, self.entities, self.relations, self.notes, self.progress)

    def parts(self, splits: dict[str, Ids], notes: list[str]) -> dict[str, Any]:
        """Return the arguments of ``KnowledgeGraph.from_arrays``."""
        return {
            "entities": list(self.entities),
            "relations": list(self.relations),
            "splits": splits,
            "labels": self.rdf.labels() if self.has_rdf else {},
            "notes": self.notes + notes,
        }


def _name(path: Path) -> str:
    """Return the name of a graph: the folder's name, or the file's without suffixes."""
    name = path.name if path.name not in ("", "..") else path.resolve().name
    return name if path.is_dir() else name.split(".")[0] or name


def _openke_folder(folder: Path, progress: Progress | None) -> dict[str, Any]:
    def file(stem: str) -> Path | None:
        return _find(folder, stem, OPENKE_SUFFIXES)

    entities = read_openke_names(file("entity2id") or folder / "entity2id.txt")
    relations = read_openke_names(file("relation2id") or folder / "relation2id.txt")
    sizes = len(entities), len(relations)
    splits = {
        split: read_openke_ids(path, *sizes, progress)
        for split in SPLITS
        if (path := file(f"{split}2id"))
    }
    if not len(splits["train"]):
        raise UserError(f"{file('train2id')}: the file holds no triples")
    labelled = {
        split: read_openke_labelled(path, *sizes)
        for split in ("valid", "test")
        if (path := file(f"{split}_neg"))
    }
    return {
        "entities": entities,
        "relations": relations,
        "splits": splits,
        "labelled": labelled,
        "notes": _missing(folder, splits),
    }


def _folder(folder: Path, split_seed: int, reader: _Reader) -> dict[str, Any]:
    suffixes = TABLE_SUFFIXES + RDF_SUFFIXES
    files = {split: path for split in SPLITS if (path := _find(folder, split, suffixes))}
    if "train" not in files:
        names = ", ".join(f"train{suffix}" for suffix in suffixes)
        raise UserError(f"{folder}: holds no {names} nor train2id.txt (or .gz of it)")
    if len(files) == 1:
        return _single_file(files["train"], split_seed, reader)
    splits = {split: reader.read(file) for split, file in files.items()}
    return reader.parts(splits, _missing(folder, splits))


def _find(folder: Path, stem: str, suffixes: tuple[str, ...]) -> Path | None:
    """Return the only file of that stem, packed or not, or None; refuse several."""
    names = [f"{stem}{suffix}{packed}" for suffix in suffixes for packed in ("", ".gz")]
    found = [name for name in names if (folder / name).exists()]
    if len(found) > 1:
        raise UserError(f"{folder}: which one is to be read? {', '.join(found)}")
    return folder / found[0] if found else None


def _missing(folder: Path, splits: dict[str, Ids]) -> list[str]:
    return [f"{folder} has no {split} file" for split in SPLITS if split not in splits]


def _single_file(path: Path, split_seed: int, reader: _Reader) -> dict[str, Any]:
    triples, notes = reader.read(path), []
    if reader.progress is not None:
        reader.progress(f"splitting {path.name}", 0, 1)
    once = distinct(triples)
    if dropped := len(triples) - len(once):
        notes.append(f"{dropped:,} duplicate triples dropped from {path.name}")
    splits = split_triples(once, split_seed)
    sizes = " / ".join(f"{len(splits[split]):,}" for split in SPLITS)
    notes.append(f"split by seed {split_seed} into train / valid / test: {sizes} triples")
    return reader.parts(splits, notes)
