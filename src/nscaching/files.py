"""Files that are written whole or not at all; what is wrong with one is a single line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from nscaching.errors import UserError

__all__ = [
    "PARTIAL",
    "own",
    "parse_json",
    "read_lines",
    "read_tensors",
    "read_text",
    "save_tensors",
]

PARTIAL = ".partial"


def own(path: Path) -> Path:
    """Return the path of a file; a link out of its folder, which others may have made, is none.

    Neither is a pipe or a device, which may never end.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file")
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise UserError(f"{path} is a link that leads out of its folder")
    return path


def save_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors as safetensors."""
    from safetensors.torch import save_file

    unfinished = path.with_name(f"{path.name}{PARTIAL}")
    whole = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    unfinished.unlink(missing_ok=True)  # a link there would lead elsewhere
    unfinished.touch()
    mode = unfinished.stat().st_mode  # as for any new file; the library's own are for one reader
    save_file(whole, unfinished, metadata)
    unfinished.chmod(mode)
    os.replace(unfinished, path)  # noqa: PTH105  (the name says that it replaces)


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
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line:
            value = parse_json(f"{path}:{number}", line)
            if not fits(value):
                raise UserError(f"{path}:{number}: not a line of {what}")
            found.append(value)
    return found
