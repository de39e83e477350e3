"""Checkpoints: the whole state of a training run in one file with a checksum."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching import files
from nscaching.errors import UserError, flag, reading

if TYPE_CHECKING:
    from torch import Tensor

    from nscaching.kernels.state import State

CHECKPOINTS = "checkpoints"
CHECKPOINT = re.compile(rf"(\d{{6,}})(\.best)?\.safetensors(?:{re.escape(files.PARTIAL)})?")
# 1 held the best parameters itself, and the random state of a stored order of triples.
# A checkpoint of several processes is a folder: see shard_checkpoints.py.
SHARDED = re.compile(rf"(\d{{6,}})\.shards(?:{re.escape(files.PARTIAL)})?")
FORMAT, READABLE = "2", ("1", "2")
KEPT = 2


class Checkpoints:
    """The numbered checkpoints of a training run; the two newest intact ones are kept.

    The best parameters of a run folder are a file of their own. Beside each checkpoint that file
    has a second name, NUMBER.best.safetensors, which takes no room: better parameters replace the
    file and not what the checkpoint needs.
    """

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS
        self.whole: list[Path] = []  # that this process wrote or read, the newest last
        self._summed: tuple[tuple[int, int], str] | None = None  # a file of the best, and its sum

    def lock(self) -> files.FolderLock:
        with files.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        return files.FolderLock(self.folder)

    def _all(self) -> list[Path]:
        """Return all checkpoints by their names, also unfinished ones; no folders."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return [file for file in found if CHECKPOINT.fullmatch(file.name) and not file.is_dir()]

    def files(self) -> list[Path]:
        """Return the completely written checkpoints, the newest last."""
        whole = [file for file in self._all() if re.fullmatch(r"\d+\.safetensors", file.name)]
        return sorted(whole, key=_number)

    def save(self, state: State, best: Path | None = None) -> Path:
        """Write a checkpoint; ``best`` is the file of the best parameters, if there is one."""
        from torch import Tensor

        with files.writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        before = self.files()
        number = _number(before[-1]) + 1 if before else 1
        path = self.folder / f"{number:06d}.safetensors"
        tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        plain = {key: value for key, value in state.items() if key not in tensors}
        if shutil.disk_usage(self.folder).free < sum(each.nbytes for each in tensors.values()):
            self._remove_but(self.whole[-1:])
        metadata = {"format": FORMAT, "state": json.dumps(plain)}
        if best is not None:
            files.sync(best)
            files.link(best, best_of(path))
            metadata["best"] = self._sum_of(best)
        metadata["sha256"] = _digest(metadata, tensors)
        files.save_tensors(path, tensors, metadata, durable=True)
        self.whole = [*self.whole, path][-KEPT:]
        self._remove_but(self.whole)
        return path

    def _sum_of(self, best: Path) -> str:
        """Return the checksum of the best parameters, computed once for each file."""
        about = best.stat()
        which = (about.st_ino, about.st_mtime_ns)
        if self._summed is None or self._summed[0] != which:
            self._summed = which, _sum(best)
        return self._summed[1]

    def _remove_but(self, kept: Sequence[Path]) -> None:
        with files.writing(self.folder):
            for file in self._all():
                if file not in kept and file not in map(best_of, kept):
                    file.unlink()

    def exist(self) -> bool:
        """Say whether there is a whole checkpoint, of one process or of several."""
        return bool(self.files() or sharded_in(self.folder))

    def keep_newest(self) -> None:
        """Remove all checkpoints but the newest."""
        self._remove_but(self.files()[-1:])

    def newest(self, say: Callable[[str], None], needed: bool = True) -> State | None:
        """Read the newest intact checkpoint; ``say`` receives a line on each damaged one.

        If all are damaged, that is an error only if a checkpoint is needed.
        """
        damaged: list[str] = []
        for file in reversed(self.files()):
            state = _read(file)
            if not isinstance(state, str):
                self.whole = [file]
                for text in damaged:
                    say(f"{text}: {file.name} is used")
                return state
            damaged.append(f"{file} is damaged ({state})")
        for text in damaged:
            say(text)
        if damaged and needed:
            cure = f"without that folder, {flag('resume')} starts from the beginning"
            raise UserError(f"{self.folder}: none of its checkpoints is whole; {cure}")
        return None

    def remove(self) -> None:
        self._remove_but([])
        for path in self.folder.iterdir():
            if SHARDED.fullmatch(path.name):
                shutil.rmtree(path)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
        files.sync(self.folder.parent)


def sharded_in(folder: Path) -> list[Path]:
    """Return the whole checkpoints of several processes in a folder, the newest last."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((p for p in found if re.fullmatch(r"\d{6,}\.shards", p.name)), key=_number)


def _number(file: Path) -> int:
    return int(file.name.partition(".")[0])


def best_of(file: Path) -> Path:
    """Return where the best parameters of a checkpoint are, if they are beside it."""
    return file.with_name(f"{file.stem}.best.safetensors")


def _sum(file: Path) -> str:
    with reading(file), file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _read(file: Path) -> State | str:
    try:
        tensors, metadata = files.read_tensors(file)
    except UserError as error:
        return str(error).removeprefix(f"{file}: ")
    if metadata.pop("sha256", "") != _digest(metadata, tensors):
        return "its checksum differs"
    if metadata.get("format") not in READABLE:
        known = " and ".join(READABLE)
        cure = f"this version of nscaching reads {known}: resume with the version that wrote it"
        raise UserError(f"{file} has format {metadata.get('format')!r}, {cure}")
    if "best" in metadata:
        best = best_of(file)
        if not best.is_file() or _sum(files.regular_file(best)) != metadata["best"]:
            return f"{best.name}, its best parameters, is missing or has changed"
    state: State = json.loads(metadata["state"])
    return state | tensors


def _digest(metadata: dict[str, str], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for piece in files.pieces(tensor):
            digest.update(piece)
    return digest.hexdigest()
