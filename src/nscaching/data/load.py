"""Load a KnowledgeGraph: by a known name, from a folder of splits, or from a file to split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.data import datasets
from nscaching.data.frames import number_splits, read_columns
from nscaching.data.graph import SPLITS, KnowledgeGraph, Source
from nscaching.data.index import Ids, distinct
from nscaching.data.negatives import read_named, read_negatives
from nscaching.data.readers.blocks import Progress
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.openke import read_openke_ids, read_openke_labelled, read_openke_names
from nscaching.data.readers.rdf import RDF_SUFFIXES, RdfReader, is_rdf
from nscaching.data.readers.table import TABLE_SUFFIXES, file_suffix, read_labels
from nscaching.errors import UserError, check_bounds, counted, unknown, user_path

WORLD = Path(__file__).parent / "world"
LABELS_FILE = "entity_labels.tsv"
FORMATS = TABLE_SUFFIXES + RDF_SUFFIXES
NEGATIVES = "_neg", "_negatives"  # ends of the names of files with false triples of a split
COMPILED_FROM = 1_000_000  # triples; a split of fewer is faster than the import of Numba


def load_graph(
    data: str | Path, labels: str | Path, split_seed: int, literals: bool, progress: Progress | None
) -> KnowledgeGraph:
    text = str(data)
    check_bounds("split_seed", split_seed, 0)
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
        parts = _read_names(path, split_seed, literals, progress)
    parts["notes"] += [f"{path} has no {s} file" for s in SPLITS if s not in parts["splits"]]
    given = user_path(labels).resolve() if labels else None
    file = given or (path if path.is_dir() else path.parent) / LABELS_FILE
    if given or file.exists():
        found = read_labels(file)
        parts["labels"] |= found
        if found.keys().isdisjoint(parts["entities"]):
            parts["notes"].append(f"{file} labels no entity of these data")
    parts["source"] = Source(source, str(given or ""), split_seed, literals)
    return KnowledgeGraph.from_arrays(**parts, name=name)


def _name(path: Path) -> str:
    """Return the name of a graph: the folder's name, or the file's without suffixes."""
    name = path.name if path.name not in ("", "..") else path.resolve().name
    return name if path.is_dir() else name.split(".")[0] or name


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


def _read_names(
    path: Path, split_seed: int, literals: bool, progress: Progress | None
) -> dict[str, Any]:
    """Read files of names into the arguments of ``from_arrays``; a single file is split."""
    files = {"train": path}
    if path.is_dir():
        found = {split: _find(path, split, suffixes=FORMATS) for split in SPLITS}
        files = {split: file for split, file in found.items() if file}
        if "train" not in files:
            names = ", ".join(f"train{suffix}" for suffix in FORMATS)
            raise UserError(f"{path}: holds no {names} nor train2id.txt (or .gz of it)")
    entities, relations = NameTable(), NameTable()
    rdf = RdfReader(entities, relations, literals)
    notes, repeats = rdf.notes, dict[str, int]()
    splits = {split: read_named(file, rdf, progress) for split, file in files.items()}
    given = _negatives(path) if path.is_dir() else {}
    labelled = {split: read_negatives(file, rdf, progress) for split, file in given.items()}
    if len(files) == 1:
        file, triples = files["train"], splits["train"]
        if progress is not None:
            progress(f"splitting {file.name}", 0, 1)
        splits = split_noted(triples, split_seed, file.name, notes, repeats)
    labels = rdf.labels() if any(map(is_rdf, files.values())) else {}
    prefixes = rdf.prefixes.own
    parts = {"entities": list(entities), "relations": list(relations), "splits": splits}
    parts |= {"labelled": labelled, "repeats": repeats}
    return parts | {"labels": labels, "prefixes": prefixes, "notes": notes}


def graph_of_triples(
    given: dict[str, Any],
    split_seed: int | None,
    columns: Sequence[Any] | None,
    names: tuple[Sequence[Any] | None, Sequence[Any] | None],
    **rest: Any,  # noqa: ANN401
) -> KnowledgeGraph:
    """Build a graph from what Python code passes; see ``KnowledgeGraph.from_triples``."""
    split_alone = split_seed is not None and given.keys() == {"train"}
    read = {
        split: read_columns(triples, "triples" if split == "train" else split, columns)
        for split, triples in given.items()
    }
    if not len(read["train"][0]):
        raise UserError("triples: there are none")
    entities, relations, splits = number_splits(read, *names)
    notes, repeats = list[str](), dict[str, int]()
    if split_alone and split_seed is not None:
        check_bounds("split_seed", split_seed, 0)
        splits = split_noted(splits["train"], split_seed, "the triples", notes, repeats)
    rest |= {"notes": notes, "repeats": repeats}
    return KnowledgeGraph.from_arrays(entities, relations, splits, **rest)


def split_noted(
    triples: Ids, seed: int, name: str, notes: list[str], repeats: dict[str, int]
) -> dict[str, Ids]:
    """Split triples by seed, each once, and note what was done."""
    once = distinct(triples)
    if dropped := len(triples) - len(once):
        notes.append(f"{counted(dropped, 'duplicate triple')} dropped from {name}")
        repeats[name] = dropped
    splits = split_triples(once, seed)
    sizes = " / ".join(f"{len(splits[split]):,}" for split in SPLITS)
    notes.append(f"split by seed {seed} into train / valid / test: {sizes} triples")
    return splits


def split_triples(triples: Ids, seed: int, share: float = 0.05) -> dict[str, Ids]:
    """Hold out ``share`` of the triples for valid and as many for test, by seed.

    A triple is held out only while its head, tail and relation still occur in train, so that
    no unseen name is ranked; a sparse graph may therefore yield fewer than asked.
    """
    held_out = np.empty(2 * round(share * len(triples)), np.int64)
    order = np.random.default_rng(seed).permutation(len(triples))
    entity_left = np.bincount(triples[:, [0, 2]].ravel())
    relation_left = np.bincount(triples[:, 1])
    if len(triples) >= COMPILED_FROM:
        from numba import njit

        count = njit(cache=True)(hold_out)(triples, order, entity_left, relation_left, held_out)
    else:
        lists = order.tolist(), entity_left.tolist(), relation_left.tolist()
        count = hold_out(triples, *lists, held_out)
    half = (count + 1) // 2
    split = np.zeros(len(triples), dtype=np.int8)  # 0, 1, 2: train, valid, test
    split[held_out[:half]] = 1
    split[held_out[half:count]] = 2
    return {name: triples[split == i] for i, name in enumerate(SPLITS)}


def hold_out(triples: Ids, order: Any, entity_left: Any, relation_left: Any, held_out: Any) -> int:  # noqa: ANN401
    """Fill ``held_out`` with rows that may be held out, in ``order``; return how many.

    Takes lists, or arrays when it is compiled.
    """
    count = 0
    for row in order:
        if count == len(held_out):
            break
        head, relation, tail = triples[row]
        needed = 3 if head == tail else 2  # a loop takes two occurrences of one entity
        if (
            entity_left[head] >= needed
            and entity_left[tail] >= needed
            and relation_left[relation] >= 2
        ):
            entity_left[head] -= 1
            entity_left[tail] -= 1
            relation_left[relation] -= 1
            held_out[count] = row
            count += 1
    return count
