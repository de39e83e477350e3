"""Read and write files: whole or not at all, and every failure is one line with the path."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nscaching.errors import UserError, flag, reading

if TYPE_CHECKING:  # what reads a run need not wait for PyTorch
    from torch import Tensor

PARTIAL = ".partial"
LINE_LIMIT = 64 << 20  # bytes of a line of JSON; a name has at most 16 MiB
PIECE = 64 << 20  # bytes of a tensor on a GPU that are copied at once

# Names of the number types in safetensors files. NumPy has all of them but bfloat16.
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip


class CannotWriteError(UserError):
    """The disk is full, or the folder is not writable."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into one line that names the path."""
    try:
        yield
    except OSError as error:
        raise CannotWriteError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path, *, durable: bool = False, shared: bool = False) -> Iterator[Path]:
    """Yield a file to write beside ``path``; rename that file to ``path`` at the end of the block.

    If anything fails, ``path`` stays as it was and the unfinished file is removed: it takes room
    on a disk that may be full. A ``durable`` file survives a power cut. The unfinished file is
    called NAME.partial; in a folder ``shared`` with the user's files, that name may be taken, and
    the next free one is used. Such a folder is made if it is missing.
    """
    partial = path.with_name(path.name + PARTIAL)
    if shared:
        partial = free_path(partial)
    try:
        with writing(path):
            if shared:
                path.parent.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)  # a link of that name would lead elsewhere
            yield partial
            if durable:
                sync(partial)
            partial.replace(path)
            if durable:
                sync(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def regular_file(path: Path) -> Path:
    """Return the path, or refuse a pipe, a device and a link to a file outside of the folder.

    A stranger may have made the folder: a pipe may never end, a link may lead to a secret.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file")
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise UserError(f"{path} is a link that leads out of its folder")
    return path


def refuse_existing(path: Path, named: str, overwrite: bool, hint: str = "") -> None:
    """Refuse a path that exists, unless it may be overwritten; ``named`` is its parameter."""
    if not overwrite and (path.exists() or path.is_symlink()):
        choice = f"choose another {named}, or say {flag('overwrite', 'overwrite=True')}"
        raise UserError(f"{path} exists already; {choice}{hint}")


def check_new_file(path: Path, named: str, overwrite: bool) -> None:
    """Refuse a folder, and a file that exists unless it may be overwritten."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; {named} names a file")
    refuse_existing(path, named, overwrite)


def free_path(path: Path) -> Path:
    """Return the path, or the first of NAME-2, NAME-3 … that does not exist."""
    number, free = 1, path
    while free.exists() or free.is_symlink():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def write_text(path: Path, text: str, shared: bool = False) -> None:
    with replacing(path, shared=shared) as partial:
        partial.write_text(text, encoding="utf-8")


def read_text(path: Path) -> str:
    with reading(path):
        return regular_file(path).read_text(encoding="utf-8")


def save_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    metadata: dict[str, str] | None = None,
    durable: bool = False,
) -> None:
    with replacing(path, durable=durable) as partial:
        write_tensors(partial, tensors, metadata)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> None:
    """Write tensors as safetensors straight into a file, from a GPU piece by piece.

    The library's own writer leaves files of random names behind when its process is killed.
    """
    # The widest numbers first: then every tensor begins at a multiple of its number size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        dtype = str(tensor.dtype).removeprefix("torch.")
        header[name] = {"dtype": DTYPES[dtype], "shape": list(tensor.shape)}
        header[name]["data_offsets"] = [begin, end]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for piece in pieces(tensors[name]):
                file.write(piece)


def pieces(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor; without a copy those of a contiguous tensor in memory."""
    import torch

    for piece in tensor.detach().contiguous().view(-1).split(PIECE // tensor.element_size()):
        if piece.numel():
            yield piece.cpu().view(torch.uint8).numpy().data


def link(path: Path, new: Path) -> None:
    """Give a file a second name, in place of what has that name; or copy where links cannot be."""
    with replacing(new) as partial:
        try:
            partial.hardlink_to(path)
        except OSError:
            shutil.copyfile(path, partial)
            sync(partial)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    with reading(path, SafetensorError), safe_open(regular_file(path), framework="pt") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name) for name in names}, file.metadata() or {}


def map_arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Return the arrays of a safetensors file and its metadata.

    The arrays are mapped into memory: what nobody uses is never read.
    """
    from safetensors import SafetensorError, safe_open

    names = {name: dtype for dtype, name in DTYPES.items() if name != "BF16"}
    with reading(path, SafetensorError, KeyError):
        with safe_open(regular_file(path), framework="np") as checked:  # checks the header
            metadata = checked.metadata() or {}
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        begin = 8 + size
        data = np.empty(0, np.uint8)
        if path.stat().st_size > begin:
            data = np.memmap(path, np.uint8, "r", begin)
        arrays = {}
        for name, entry in header.items():
            part = data[slice(*entry["data_offsets"])]
            arrays[name] = part.view(np.dtype(names[entry["dtype"]])).reshape(entry["shape"])
        return arrays, metadata


def append_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """Append JSON objects to a file, one line each, in one write."""
    with writing(path), regular_file(path).open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(value) + "\n" for value in values))


def cut_last_line(path: Path) -> None:
    """Cut off a last line that was not written to its end."""
    with writing(path), regular_file(path).open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def read_lines(path: Path, fits: Callable[[Any], bool], what: str) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line; ``fits`` checks each object."""
    found = []
    with reading(path), regular_file(path).open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT), b""), 1):
            if len(line) == LINE_LIMIT:
                raise UserError(f"{path}:{number}: the line is longer than {LINE_LIMIT:,} bytes")
            if text := line.decode().removesuffix("\n"):
                with reading(f"{path}:{number}"):
                    value = json.loads(text)
                if not fits(value):
                    raise UserError(f"{path}:{number}: not a line of {what}")
                found.append(value)
    return found


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder for this process; False: another process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some file systems have no locks
        pass
    return True


class FolderLock:
    """Reserves a folder for one process; the lock ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = os.open(path, os.O_RDONLY)
        if not try_lock(self._descriptor):
            self.release()
            raise UserError(f"{path} is in use: another process is training there")

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
