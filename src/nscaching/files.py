"""Files that are written whole or not at all; what is wrong with one is a single line."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nscaching.errors import UserError

__all__ = [
    "PARTIAL", "CannotWriteError", "FolderLock", "append_lines", "free_path", "own", "parse_json",
    "raw_bytes", "read_lines", "read_tensors", "read_text", "save_tensors", "sync", "write_text",
    "writing",
]  # fmt: skip

PARTIAL = ".partial"
LINE_LIMIT = 64 << 20  # bytes of a line of JSON; names have at most 16 MiB each

# Types of numbers as safetensors files name them.
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64",
}  # fmt: skip


def own(path: Path) -> Path:
    """Return the path of a file; a link out of its folder, which others may have made, is none.

    Neither is a pipe or a device, which may never end.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file")
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise UserError(f"{path} is a link that leads out of its folder")
    return path


def free_path(path: Path) -> Path:
    """Return the path, or with a number behind its name the first that does not exist."""
    number, free = 1, path
    while free.exists() or free.is_symlink():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def save_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    metadata: dict[str, str] | None = None,
    durable: bool = False,
) -> None:
    """Write tensors as safetensors; if durable, so that they outlast a power cut.

    The library's own writer leaves files of random names behind when its process is killed.
    """
    unfinished = path.with_name(f"{path.name}{PARTIAL}")
    whole = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    # Widest numbers first, so that all lie where their size wants them to.
    order = sorted(whole, key=lambda name: (-whole[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in order:
        begin, end = end, end + whole[name].nbytes
        shape = list(whole[name].shape)
        header[name] = {"dtype": DTYPES[whole[name].dtype], "shape": shape}
        header[name]["data_offsets"] = [begin, end]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with writing(path, unfinished):
        unfinished.unlink(missing_ok=True)  # a link there would lead elsewhere
        with unfinished.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                file.write(raw_bytes(whole[name]))
        if durable:
            sync(unfinished)
        os.replace(unfinished, path)  # noqa: PTH105  (the name says that it replaces)
        if durable:
            sync(path.parent)


def raw_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, without a copy."""
    if not tensor.numel():
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8."""
    unfinished = path.with_name(f"{path.name}{PARTIAL}")
    with writing(path, unfinished):
        unfinished.unlink(missing_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)  # noqa: PTH105


def append_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """Add JSON objects to a file, a line each, in one go."""
    with writing(path), own(path).open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(value) + "\n" for value in values))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def writing(path: Path, unfinished: Path | None = None) -> Iterator[None]:
    """Say in one line what cannot be written; remove what was written of it."""
    try:
        yield
    except (OSError, UserError) as error:
        if unfinished is not None:  # it takes room, and may be why there is none
            unfinished.unlink(missing_ok=True)
        if isinstance(error, UserError):
            raise
        raise CannotWriteError(f"cannot write {path}: {error.strerror or error}") from error


class CannotWriteError(UserError):
    """The disk is full, or the folder is not ours."""


class FolderLock:
    """Holds a folder for one process. However that process ends, the folder is free again."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise UserError(f"{path} is in use: another process is training there") from None
        except OSError:  # some file systems know no locks
            pass

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a safetensors file, and its metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(own(path), framework="pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot read it: {error}") from error


def read_text(path: Path) -> str:
    """Read a file of UTF-8."""
    try:
        return own(path).read_text(encoding="utf-8")
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot read it: {reason}") from error


def parse_json(where: str, text: str) -> Any:  # noqa: ANN401  (JSON may be anything)
    """Read JSON, or say where it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot read it: {error}") from error


def read_lines(path: Path, fits: Callable[[Any], bool], what: str) -> list[dict[str, Any]]:
    """Read a file with one JSON object in each line, all of which must fit."""
    found = []
    try:
        with own(path).open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT), b""), 1):
                if len(line) == LINE_LIMIT:
                    raise UserError(
                        f"{path}:{number}: the line is longer than {LINE_LIMIT:,} bytes"
                    )
                if text := line.decode().removesuffix("\n"):
                    value = parse_json(f"{path}:{number}", text)
                    if not fits(value):
                        raise UserError(f"{path}:{number}: not a line of {what}")
                    found.append(value)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot read it: {reason}") from error
    return found
