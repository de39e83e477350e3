"""Name → class. Models and samplers register themselves.

From outside come "package.module:Class" and "path/to/file.py:Class".
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from nscaching.errors import UserError, unknown
from nscaching.own_files import is_file_spec, load_from_file

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """The classes of one kind, found by name without regard to case.

    A class registers itself with a decorator in its own file; every file of ``package`` is
    imported on the first look-up, so that a new file is all that a new class needs.
    """

    def __init__(self, kind: str, base: type[T], package: str) -> None:
        self.kind, self.base, self.package = kind, base, package
        self._classes: dict[str, type[T]] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Return the decorator that makes a class known as ``name``."""

        def add(cls: type[T]) -> type[T]:
            if any(name.casefold() == known.casefold() for known in self._classes):
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        self._discover()
        return sorted(self._classes, key=str.casefold)

    def canonical(self, name: str) -> str:
        """Return ``name`` in its registered spelling; one with a colon stays as it is."""
        if ":" in name:
            return name
        for known in self.names():
            if known.casefold() == name.casefold():
                return known
        raise unknown(self.kind, name, self.names())

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``, or raise a UserError with the known names."""
        if ":" in name:
            return self._load(name)
        return self._classes[self.canonical(name)]

    def _discover(self) -> None:
        if not self._discovered:
            self._discovered = True
            folder = importlib.import_module(self.package).__path__
            for module in pkgutil.iter_modules(folder):
                importlib.import_module(f"{self.package}.{module.name}")

    def _load(self, spec: str) -> type[T]:
        module_name, _, class_name = spec.partition(":")
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # where an installed command does not look by itself
        cls: object
        try:
            if is_file_spec(spec):
                cls = load_from_file(spec)
            else:
                cls = getattr(importlib.import_module(module_name), class_name)
        except Exception as error:  # the module is the user's: anything may happen in it
            raise UserError(f"cannot load {self.kind} {spec!r}: {error}") from error
        if not (isinstance(cls, type) and issubclass(cls, self.base)) or inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise UserError(
                f"{self.kind} {spec!r} is not a complete subclass of {self.base.__name__}"
                + (f": it lacks {missing}" if missing else "")
            )
        return cls
