"""Arrays of graphs, kept in the user's cache folder and mapped into memory at the next start.

A folder ``graphs/NAME-DIGEST`` holds ``arrays``, which are whole or not there, and while they are
made a folder ``unfinished``. Who looks at either holds the lock of the folder around them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.data.checks import SPLITS, in_range
from nscaching.data.datasets import cache_home
from nscaching.data.index import Ids
from nscaching.data.mapped_names import MappedNames, ends_of
from nscaching.data.readers.blocks import Progress
from nscaching.errors import UserError, reading
from nscaching.files import CannotWriteError, sync, try_lock, writing

FORMAT = 1  # of the arrays and of how files are read: arrays of another format are made anew
ARRAYS, UNFINISHED, ABOUT = "arrays", "unfinished", "graph.json"
TEXT, ENDS, ORDER = "names.utf8", "ends.npy", "order.npy"
FALSE = "_false"  # ends the name of an array of false triples
TOLD = ("relations", "notes", "checked", "repeats")  # what ABOUT has of a graph
POLL = 0.2  # seconds between two looks at a lock that another process holds
TICK = 0.02  # seconds: two changes of a file within less may leave the same time

Said = Callable[[str], None]


@dataclass(frozen=True)
class Kept:
    """A graph as arrays, and what was noted when they were made."""

    entities: MappedNames
    relations: list[str]
    splits: dict[str, Ids]
    labelled: dict[str, Ids]  # false triples of a split
    notes: list[str]  # of reading the files
    checked: list[str]  # notes of the splits
    repeats: dict[str, int]


def identity(files: Mapping[str, Path], split_seed: int) -> dict[str, Any]:
    """Return what arrays are made from: any change of a file changes it.

    The time of the last change of a file (ctime) cannot be set by a program.
    """
    found: dict[str, Any] = {"format": FORMAT, "split_seed": split_seed, "files": {}}
    for role, path in files.items():
        with reading(path):
            about = path.stat()
            if (age := time.time() - about.st_ctime) < TICK:
                time.sleep(TICK - max(age, 0))
                about = path.stat()
        times = about.st_mtime_ns, about.st_ctime_ns
        found["files"][role] = [str(path.resolve()), about.st_size, *times, about.st_ino]
    return found


class Store:
    """The kept arrays of the data at a path."""

    def __init__(self, name: str, where: Path, split_seed: int) -> None:
        told = json.dumps([str(where.resolve()), split_seed])
        digest = hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:16]
        plain = re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII)[:64]
        self.folder = cache_home() / "graphs" / f"{plain}-{digest}"
        self.arrays, self.unfinished = self.folder / ARRAYS, self.folder / UNFINISHED

    @contextmanager
    def locked(self, say: Said) -> Iterator[None]:
        """Keep other processes from the folder; wait for one that has the lock."""
        with self.writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            waits = False
            while not try_lock(descriptor):
                if not waits:
                    say(f"another process reads the same data into {self.folder}: waiting for it")
                waits = True
                time.sleep(POLL)
            yield
        finally:
            os.close(descriptor)  # which releases the lock, as the end of a process does

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn an OSError into one line with a remedy."""
        try:
            with writing(self.folder):
                yield
        except CannotWriteError as error:
            raise UserError(f"{error}; NSCACHING_HOME may name another folder") from error

    def find(self, made_from: dict[str, Any], say: Said) -> Kept | None:
        """Return the arrays that were made from the files as they are now, mapped into memory."""
        if not self.arrays.exists():
            return None
        try:
            about = json.loads((self.arrays / ABOUT).read_text(encoding="utf-8"))
            if (before := about["made_from"]) != made_from:
                what = f"the data have changed since {self.arrays} was made from them"
                if before["format"] != FORMAT:
                    what = f"{self.arrays} was made by another version"
                say(f"{what}: reading anew")
                return None
            return _read(self.arrays, about)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            reason = getattr(error, "strerror", None) or error
            say(f"{self.arrays} is damaged ({reason}): reading the data anew")
            return None

    @contextmanager
    def making(self, say: Said) -> Iterator[Path]:
        """Yield a folder to make arrays in; at the end it gets the name of whole arrays."""
        with self.writing():
            if self.unfinished.exists():
                say(f"reading was interrupted and left {self.unfinished}: it begins anew")
                shutil.rmtree(self.unfinished)
            if self.arrays.exists():
                shutil.rmtree(self.arrays)  # processes that use them keep what they mapped
            self.unfinished.mkdir()
            try:
                yield self.unfinished
                for file in self.unfinished.iterdir():
                    sync(file)
                sync(self.unfinished)
                self.unfinished.rename(self.arrays)
                sync(self.folder)
            except BaseException:
                shutil.rmtree(self.unfinished, ignore_errors=True)  # the disk may be full
                raise


def write_names(folder: Path, texts: Iterable[bytes], order: Iterable[Ids]) -> MappedNames:
    """Write names, given by number and each ended by END, with their order; map them."""
    ends = [np.zeros(1, np.int64)]
    with (folder / TEXT).open("wb") as file:
        for text in texts:
            ends.append(ends[-1][-1] + ends_of(np.frombuffer(text, np.uint8)))
            file.write(text)
    _write_array(folder / ENDS, np.concatenate(ends))
    _write_array(folder / ORDER, np.concatenate([np.empty(0, np.int32), *order]))
    return _map_names(folder)


def write_graph(folder: Path, kept: Kept, made_from: dict[str, Any], progress: Progress) -> None:
    """Write everything but the names of entities, which the folder has."""
    arrays = kept.splits | {f"{split}{FALSE}": rows for split, rows in kept.labelled.items()}
    done, size = 0, sum(rows.nbytes for rows in arrays.values())
    for name, rows in arrays.items():
        progress("keeping arrays", done, max(1, size))
        _write_array(folder / f"{name}.npy", rows)
        done += rows.nbytes
    about = {name: getattr(kept, name) for name in TOLD}
    about |= {"made_from": made_from, "sizes": _sizes(folder), "arrays": list(arrays)}
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _read(folder: Path, about: dict[str, Any]) -> Kept:
    """Map arrays into memory, or raise an error that says why they are not whole."""
    if (found := _sizes(folder)) != about["sizes"]:
        wrong = {name for name, _ in found.items() ^ about["sizes"].items()}
        raise ValueError(f"{min(wrong)} has another size than when it was written")
    entities, relations = _map_names(folder), about["relations"]
    arrays = {name: _map_array(folder / f"{name}.npy") for name in about["arrays"]}
    sizes = len(entities), len(relations), len(entities)
    if not entities.fits() or not all(
        rows.dtype == np.int32 and rows.shape[1:] == (3,) and in_range(rows, *sizes)
        for rows in arrays.values()
    ):
        raise ValueError("its arrays do not fit each other")
    splits = {split: arrays[split] for split in SPLITS}
    labelled = {s: arrays[s + FALSE] for s in SPLITS if s + FALSE in arrays}
    return Kept(entities, splits=splits, labelled=labelled, **{n: about[n] for n in TOLD})


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in folder.iterdir() if path.is_file() and path.name != ABOUT)
    return {path.name: path.stat().st_size for path in files}


def _map_names(folder: Path) -> MappedNames:
    text = np.asarray(np.memmap(folder / TEXT, np.uint8, "c"))
    return MappedNames(text, _map_array(folder / ENDS), _map_array(folder / ORDER))


def _map_array(path: Path) -> npt.NDArray[Any]:
    """Map an array; what is written to it stays in this process (PyTorch warns of read-only)."""
    if not path.stat().st_size:
        raise ValueError(f"{path.name} is empty")
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))


def _write_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write as ``np.save`` does, which says of a full disk only how much it has written."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.reshape(-1).view(np.uint8).data)
