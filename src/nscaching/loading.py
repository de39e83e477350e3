"""Where → KnowledgeGraph: a known name, a folder of splits, or one file of triples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nscaching import datasets
from nscaching.errors import UserError, unknown
from nscaching.graph import SPLITS, Ids, KnowledgeGraph, Source, distinct
from nscaching.readers import (
    TABLE_SUFFIXES,
    NameTable,
    read_labels,
    read_openke_ids,
    read_openke_labelled,
    read_openke_names,
    read_triples,
)
from nscaching.splitting import split_triples

__all__ = ["WORLD", "load_graph"]

WORLD = Path(__file__).parent / "data" / "world"
LABELS_FILE = "entity_labels.tsv"


def load_graph(where: str | Path, labels: str | Path = "", split_seed: int = 0) -> KnowledgeGraph:
    """Load a graph; see ``KnowledgeGraph.load``."""
    text = str(where)
    known = datasets.find(text)
    if text.casefold() == "world":
        path, name, source = WORLD, "world", "world"
    elif known is not None:
        path, name, source = datasets.fetch(known.name), known.name, known.name
    else:
        path = Path(where).expanduser()
        name, source = path.name.split(".")[0] or path.resolve().name, str(path.resolve())
    parts: dict[str, Any]
    if path.is_dir():
        parts = (
            _openke_folder(path) if (path / "train2id.txt").exists() else _folder(path, split_seed)
        )
    elif path.exists():
        parts = _single_file(path, split_seed)
    elif path.suffix or len(path.parts) > 1:
        raise UserError(f"{path}: no such file or folder")
    else:
        known_names = ["world", *datasets.KNOWN]
        raise UserError(
            f"{unknown('data set', text, known_names)}; and no file or folder is called so"
        )
    beside = (path if path.is_dir() else path.parent) / LABELS_FILE
    labels_file = Path(labels).expanduser().resolve() if labels else None
    if labels_file or beside.exists():
        parts["labels"] = read_labels(labels_file or beside)
    parts["source"] = Source(source, str(labels_file or ""), split_seed)
    return KnowledgeGraph.from_arrays(**parts, name=name)


def _openke_folder(folder: Path) -> dict[str, Any]:
    entities = read_openke_names(folder / "entity2id.txt")
    relations = read_openke_names(folder / "relation2id.txt")
    sizes = len(entities), len(relations)
    splits = {
        split: read_openke_ids(folder / f"{split}2id.txt", *sizes)
        for split in SPLITS
        if split == "train" or (folder / f"{split}2id.txt").exists()
    }
    if not len(splits["train"]):
        raise UserError(f"{folder / 'train2id.txt'}: the file holds no triples")
    labelled = {
        split: read_openke_labelled(folder / f"{split}_neg.txt", *sizes)
        for split in ("valid", "test")
        if (folder / f"{split}_neg.txt").exists()
    }
    return {"entities": entities, "relations": relations, "splits": splits, "labelled": labelled}


def _folder(folder: Path, split_seed: int) -> dict[str, Any]:
    files = {split: _find_split(folder, split) for split in SPLITS}
    train = files["train"]
    if train is None:
        raise UserError(
            f"{folder}: holds no train.tsv, train.csv, train.txt (or .gz) nor train2id.txt"
        )
    if files["valid"] is None and files["test"] is None:
        return _single_file(train, split_seed)
    entities, relations = NameTable(), NameTable()
    splits = {
        split: read_triples(file, entities, relations) for split, file in files.items() if file
    }
    notes = [f"{folder} has no {split} file" for split in SPLITS if files[split] is None]
    return {
        "entities": list(entities),
        "relations": list(relations),
        "splits": splits,
        "notes": notes,
    }


def _find_split(folder: Path, split: str) -> Path | None:
    found = [
        folder / f"{split}{suffix}{packed}"
        for suffix in TABLE_SUFFIXES
        for packed in ("", ".gz")
        if (folder / f"{split}{suffix}{packed}").exists()
    ]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UserError(f"{folder}: which one is the {split} split? {names}")
    return found[0] if found else None


def _single_file(path: Path, split_seed: int) -> dict[str, Any]:
    entities, relations = NameTable(), NameTable()
    triples: Ids = read_triples(path, entities, relations)
    once = distinct(triples)
    splits = split_triples(once, split_seed)
    sizes = " / ".join(f"{len(splits[split]):,}" for split in SPLITS)
    notes = [f"split by seed {split_seed} into train / valid / test: {sizes} triples"]
    if dropped := len(triples) - len(once):
        notes.insert(0, f"{dropped:,} duplicate triples dropped from {path.name}")
    return {
        "entities": list(entities),
        "relations": list(relations),
        "splits": splits,
        "notes": notes,
    }
