"""Checkpoints: the whole state of a training run in one file with a checksum."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching import files
from nscaching.errors import UserError, flag

if TYPE_CHECKING:
    from torch import Tensor

    from nscaching.kernels.state import State

CHECKPOINTS = "checkpoints"
CHECKPOINT = re.compile(rf"(\d{{6,}})\.safetensors(?:{re.escape(files.PARTIAL)})?")
FORMAT = "1"
KEPT = 2


class Checkpoints:
    """The numbered checkpoints of a training run; the two newest intact ones are kept."""

    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS
        self.whole: list[Path] = []  # that this process wrote or read, the newest last

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
        whole = [file for file in self._all() if file.suffix != files.PARTIAL]
        return sorted(whole, key=lambda file: int(file.stem))

    def save(self, state: State) -> Path:
        from torch import Tensor

        with files.writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        before = self.files()
        number = int(before[-1].stem) + 1 if before else 1
        path = self.folder / f"{number:06d}.safetensors"
        tensors = {
            key: value.detach().cpu().contiguous()
            for key, value in state.items()
            if isinstance(value, Tensor)
        }
        plain = {key: value for key, value in state.items() if key not in tensors}
        metadata = {"format": FORMAT, "state": json.dumps(plain)}
        metadata["sha256"] = _digest(metadata, tensors)
        files.save_tensors(path, tensors, metadata, durable=True)
        self.whole = [*self.whole, path][-KEPT:]
        self._remove_but(self.whole)
        return path

    def _remove_but(self, kept: Sequence[Path]) -> None:
        with files.writing(self.folder):
            for file in self._all():
                if file not in kept:
                    file.unlink()

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
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
        files.sync(self.folder.parent)


def _read(file: Path) -> State | str:
    try:
        tensors, metadata = files.read_tensors(file)
    except UserError as error:
        return str(error).removeprefix(f"{file}: ")
    if metadata.pop("sha256", "") != _digest(metadata, tensors):
        return "its checksum differs"
    if metadata.get("format") != FORMAT:
        cure = f"this version of nscaching reads {FORMAT!r}: resume with the version that wrote it"
        raise UserError(f"{file} has format {metadata.get('format')!r}, {cure}")
    state: State = json.loads(metadata["state"])
    return state | tensors


def _digest(metadata: dict[str, str], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(files.raw_bytes(tensor))
    return digest.hexdigest()
