"""Load a KnowledgeGraph: by a known name, from a folder of splits, or from a file to split."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nscaching.data import datasets
from nscaching.data.checks import CheckedSplits
from nscaching.data.frames import number_splits, read_columns
from nscaching.data.graph import SPLITS, KnowledgeGraph, Source
from nscaching.data.index import Ids
from nscaching.data.ingest.ingest import Data, ingest, reason_to_ingest
from nscaching.data.ingest.store import Said
from nscaching.data.mapped_names import MappedNames
from nscaching.data.negatives import all_false, read_named, read_negatives
from nscaching.data.readers.blocks import Progress
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.openke import read_openke_ids, read_openke_labelled, read_openke_names
from nscaching.data.readers.rdf import RDF_SUFFIXES, RdfReader, is_rdf
from nscaching.data.readers.table import TABLE_SUFFIXES, file_suffix, read_labels
from nscaching.data.splitting import split_noted
from nscaching.errors import UserError, check_bounds, unknown, user_path
from nscaching.units import read_bytes

WORLD = Path(__file__).parent / "world"
LABELS_FILE = "entity_labels.tsv"
FORMATS = TABLE_SUFFIXES + RDF_SUFFIXES
NEGATIVES = "_neg", "_negatives"  # ends of the names of files with false triples of a split


def load_graph(
    data: str | Path,
    labels: str | Path,
    split_seed: int,
    literals: bool,
    progress: Progress | None,
    memory: str = "",
    say: Said | None = None,
) -> KnowledgeGraph:
    """Load a graph; ``say`` hears at once what else would become notes of the graph."""
    text = str(data)
    check_bounds("split_seed", split_seed, 0)
    budget = read_bytes(memory, "memory") if memory else None
    known = datasets.find(text)
    if text.casefold() == "world":
        path, name, source = WORLD, "world", "world"
    elif known is not None:
        path, name, source = datasets.fetch(known.name), known.name, known.name
    else:
        path = user_path(data)
        name, source = _name(path), str(path.resolve())
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise UserError(f"{path}: no such file or folder")
        error = unknown("data set", text, ["world", *datasets.KNOWN])
        raise UserError(f"{error}; and no file or folder is called so")
    if path.is_dir() and _find(path, "train2id"):
        parts = _read_ids(path, progress)
    else:
        found = Data(name, path, *_files_of_names(path), split_seed)
        parts = _read_names(found, literals, budget, progress, say)
    parts["notes"] += [f"{path} has no {s} file" for s in SPLITS if s not in parts["splits"]]
    given = user_path(labels).resolve() if labels else None
    file = given or (path if path.is_dir() else path.parent) / LABELS_FILE
    if given or file.exists():
        readable = read_labels(file)
        parts["labels"] |= readable
        if not _labels_any(readable, parts["entities"]):
            parts["notes"].append(f"{file} labels no entity of these data")
    parts["source"] = Source(source, str(given or ""), split_seed, literals)
    return KnowledgeGraph.from_arrays(**parts, name=name)


def _name(path: Path) -> str:
    """Return the name of a graph: the folder's name, or the file's without suffixes."""
    name = path.name if path.name not in ("", "..") else path.resolve().name
    return name if path.is_dir() else name.split(".")[0] or name


def _labels_any(labels: dict[str, str], entities: Sequence[str]) -> bool:
    if isinstance(entities, MappedNames):
        return any(name in entities for name in labels)
    return not labels.keys().isdisjoint(entities)


def _find(folder: Path, *stems: str, suffixes: tuple[str, ...] = (".txt",)) -> Path | None:
    """Return the only file of those stems, packed or not, or None; refuse several."""
    ends = [suffix + packed for suffix in suffixes for packed in ("", ".gz")]
    names = [stem + end for stem in stems for end in ends]
    found = [name for name in names if (folder / name).exists()]
    if len(found) > 1:
        raise UserError(f"{folder}: which one is to be read? {', '.join(found)}")
    return folder / found[0] if found else None


def _negatives(folder: Path) -> dict[str, Path]:
    """Return the files of false triples beside the splits."""
    found = {
        split: _find(folder, *(split + end for end in NEGATIVES), suffixes=FORMATS)
        for split in ("valid", "test")
    }
    return {split: file for split, file in found.items() if file}


def _read_ids(folder: Path, progress: Progress | None) -> dict[str, Any]:
    """Read a folder of OpenKE into the arguments of ``KnowledgeGraph.from_arrays``."""
    entities, relations = (
        read_openke_names(_find(folder, stem) or folder / f"{stem}.txt")
        for stem in ("entity2id", "relation2id")
    )
    sizes = len(entities), len(relations)
    splits = {
        split: read_openke_ids(path, *sizes, progress)
        for split in SPLITS
        if (path := _find(folder, f"{split}2id"))
    }
    if not len(splits["train"]):
        raise UserError(f"{_find(folder, 'train2id')}: the file holds no triples")
    rdf = RdfReader(NameTable.of(entities), NameTable.of(relations))
    labelled = {
        split: read_openke_labelled(path, *sizes)
        if file_suffix(path) == ".txt"
        else read_negatives(path, rdf, progress)
        for split, path in _negatives(folder).items()
    }
    parts = {"entities": entities, "relations": relations, "splits": splits, "labelled": labelled}
    return parts | {"labels": {}, "notes": rdf.notes}


def _files_of_names(path: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the file of each split, and of the false triples of a split."""
    if not path.is_dir():
        return {"train": path}, {}
    found = {split: _find(path, split, suffixes=FORMATS) for split in SPLITS}
    files = {split: file for split, file in found.items() if file}
    if "train" not in files:
        names = ", ".join(f"train{suffix}" for suffix in FORMATS)
        raise UserError(f"{path}: holds no {names} nor train2id.txt (or .gz of it)")
    return files, _negatives(path)


def _read_names(
    data: Data, literals: bool, budget: int | None, progress: Progress | None, say: Said | None
) -> dict[str, Any]:
    """Read files of names into the arguments of ``from_arrays``; a single file is split."""
    has_rdf = any(map(is_rdf, data.files().values()))
    if budget is not None and not has_rdf and (why := reason_to_ingest(data, budget)):
        return _ingested(data, budget, progress, say, why)
    entities, relations = NameTable(), NameTable()
    rdf = RdfReader(entities, relations, literals)
    notes, repeats = rdf.notes, dict[str, int]()
    splits = {split: read_named(file, rdf, progress) for split, file in data.splits.items()}
    labelled = {
        split: read_negatives(file, rdf, progress) for split, file in data.negatives.items()
    }
    if len(data.splits) == 1:
        splits = _split(data, splits["train"], notes, repeats, progress)
    labels = rdf.labels() if has_rdf else {}
    prefixes = rdf.prefixes.own
    parts = {"entities": list(entities), "relations": list(relations), "splits": splits}
    parts |= {"labelled": labelled, "repeats": repeats}
    return parts | {"labels": labels, "prefixes": prefixes, "notes": notes}


def _split(
    data: Data, triples: Ids, notes: list[str], repeats: dict[str, int], progress: Progress | None
) -> dict[str, Ids]:
    name = data.splits["train"].name
    return split_noted(triples, data.split_seed, name, notes, repeats, progress)


def _ingested(
    data: Data, budget: int, progress: Progress | None, say: Said | None, why: str
) -> dict[str, Any]:
    """Return what ``_read_names`` returns, with the names of entities on the disk."""
    said: list[str] = []
    split = partial(_split, data, progress=progress)
    kept = ingest(data, budget, split, progress, say or said.append, why)
    given = data.splits if len(data.splits) > 1 else SPLITS
    checked = CheckedSplits(kept.splits, kept.checked)
    labelled = {
        split: all_false(rows, data.negatives[split]) for split, rows in kept.labelled.items()
    }
    parts = {"entities": kept.entities, "relations": kept.relations, "checked": checked}
    parts |= {"splits": {split: kept.splits[split] for split in given}, "labelled": labelled}
    return parts | {"labels": {}, "notes": [*said, *kept.notes], "repeats": kept.repeats}


def graph_of_triples(
    given: dict[str, Any],
    split_seed: int | None,
    columns: Sequence[Any] | None,
    names: tuple[Sequence[Any] | None, Sequence[Any] | None],
    **rest: Any,  # noqa: ANN401
) -> KnowledgeGraph:
    """Build a graph from what Python code passes; see ``KnowledgeGraph.from_triples``."""
    read = {
        split: read_columns(triples, "triples" if split == "train" else split, columns)
        for split, triples in given.items()
    }
    if not len(read["train"][0]):
        raise UserError("triples: there are none")
    entities, relations, splits = number_splits(read, *names)
    notes, repeats = list[str](), dict[str, int]()
    if split_seed is not None and given.keys() == {"train"}:
        check_bounds("split_seed", split_seed, 0)
        splits = split_noted(splits["train"], split_seed, "the triples", notes, repeats)
    rest |= {"notes": notes, "repeats": repeats}
    return KnowledgeGraph.from_arrays(entities, relations, splits, **rest)
