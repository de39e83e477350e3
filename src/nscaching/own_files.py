"""Classes from a Python file of the user's: "path/to/file.py:Class"."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from nscaching.errors import UserError, user_path

__all__ = ["is_file_spec", "load_from_file"]


def is_file_spec(spec: str) -> bool:
    """Tell "file.py:Class" from "package.module:Class"."""
    return spec.rpartition(":")[0].endswith(".py")


def load_from_file(spec: str) -> object:
    """Return what a file defines under the name behind the colon, or say what is wrong."""
    file, _, name = spec.rpartition(":")
    module = _module(user_path(file))
    if not hasattr(module, name):
        raise UserError(f"{file} defines no {name!r}")
    found: object = getattr(module, name)
    return found


def _module(path: Path) -> ModuleType:
    """Run a file, unless it was run already and is still the same; two specs may share it."""
    try:
        where, source = path.resolve(), path.read_bytes()
    except OSError as error:
        here = "" if path.is_absolute() else f" (seen from {Path.cwd()})"
        raise UserError(f"cannot read the file {path}{here}: {error.strerror}") from error
    # By place, so that files of one name in two folders do not meet.
    name = f"nscaching_file_{hashlib.sha256(str(where).encode()).hexdigest()[:16]}"
    digest = hashlib.sha256(source).hexdigest()
    known = sys.modules.get(name)
    if known is not None and known.__dict__.get("__digest__") == digest:
        return known
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__digest__"] = digest
    sys.modules[name] = module  # before it runs: dataclasses and pickle look there
    try:
        # Compiled from what was read: a .pyc may be of a version written in the same second.
        exec(compile(source, str(where), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except (Exception, SystemExit) as error:  # the file is the user's: anything may happen in it
        del sys.modules[name]
        raise UserError(_reason(path, where, error)) from error
    return module


def _reason(path: Path, where: Path, error: BaseException) -> str:
    """Say which line of a file is to blame: its own last one on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(where):
        return f"{path}, line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(where)]
    place = f"{path}, line {lines[-1]}" if lines else str(path)
    return f"{place}: {type(error).__name__}: {error}"
