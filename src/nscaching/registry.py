"""Models and samplers by name, and classes of the user's own.

A class from outside the package is "package.module:Class", "path/to/file.py:Class" or, in Python,
the class itself.
"""

import hashlib
import importlib
import importlib.util
import inspect
import operator
import pkgutil
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from nscaching.errors import UserError, flag, unknown, user_path

T = TypeVar("T")

FILE_MODULE = "nscaching_file_"  # how the names of modules from users' files begin
CODE_SETTINGS = ("model", "sampler", "generator")
"""The settings that may name a class from outside the package: its module runs when it loads."""


def outside_code(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings that name code from outside the package. Nothing is imported."""
    named = ((name, settings.get(name, "")) for name in CODE_SETTINGS)
    return [f"{name} = {spec!r}" for name, spec in named if ":" in str(spec)]


def refuse_outside_code(where: str | Path, settings: Mapping[str, Any]) -> None:
    if outside := outside_code(settings):
        raise UserError(
            f"{where} names code from outside the package: {', '.join(outside)}; "
            f"read that code, then say {flag('trust', 'trust=True')} to run it"
        )


class Registry(Generic[T]):
    """The classes of one kind, found by name without regard to case.

    A class registers itself with a decorator. The first look-up imports all files of ``package``.
    """

    def __init__(self, kind: str, base: type[T], package: str) -> None:
        self.kind, self.base, self.package = kind, base, package
        self._classes: dict[str, type[T]] = {}
        self._passed: dict[str, type[T]] = {}  # classes that Python code passed, by their spec
        self._discovered = False

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        def add(cls: type[T]) -> type[T]:
            if any(name.casefold() == known.casefold() for known in self._classes):
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        if not self._discovered:
            self._discovered = True
            folder = importlib.import_module(self.package).__path__
            for module in pkgutil.iter_modules(folder):
                importlib.import_module(f"{self.package}.{module.name}")
        return sorted(self._classes, key=str.casefold)

    def canonical(self, name: str | type[T]) -> str:
        """Return the text by which a configuration names a class.

        A registered name gets its spelling, a name with a colon stays as it is. A class gets its
        registered name, or a spec, which means this class from now on.
        """
        if isinstance(name, type):
            return self._spec(name)
        if ":" in name:
            return name
        for known in self.names():
            if known.casefold() == name.casefold():
                return known
        raise unknown(self.kind, name, self.names())

    def get(self, name: str | type[T]) -> type[T]:
        known = self.canonical(name)
        if known in self._passed:
            return self._passed[known]
        return self._load(known) if ":" in known else self._classes[known]

    def _spec(self, cls: type[T]) -> str:
        for name in self.names():
            if self._classes[name] is cls:
                return name
        self._check(cls, cls.__qualname__)
        from_file = cls.__module__.startswith(FILE_MODULE)
        where = sys.modules[cls.__module__].__file__ if from_file else cls.__module__
        spec = f"{where}:{cls.__qualname__}"
        self._passed[spec] = cls
        return spec

    def _load(self, spec: str) -> type[T]:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # an installed command does not search the working folder
        module, _, name = spec.rpartition(":")
        is_file = module.endswith(".py")
        try:
            found = _run_file(user_path(module)) if is_file else importlib.import_module(module)
            cls = operator.attrgetter(name)(found)
        except Exception as error:  # the module is the user's: it may raise anything
            reason: object = error
            if "<locals>" in name or module == "__main__":  # a class that Python code passed
                place = "inside a function" if "<locals>" in name else "in a notebook or a script"
                reason = f"the class was defined {place}; define it in a module or a file"
            elif is_file and isinstance(error, AttributeError):
                reason = f"{module} defines no {name!r}"
            raise UserError(f"cannot load {self.kind} {spec!r}: {reason}") from error
        return self._check(cls, spec)

    def _check(self, cls: object, spec: str) -> type[T]:
        if isinstance(cls, type) and issubclass(cls, self.base) and not inspect.isabstract(cls):
            return cls
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        what = f"is not a complete subclass of {self.base.__name__}"
        raise UserError(f"{self.kind} {spec!r} {what}" + (missing and f": it lacks {missing}"))


def _run_file(path: Path) -> ModuleType:
    """Run a file as a module, unless the same content ran already; two specs may share a file."""
    try:
        where, source = path.resolve(), path.read_bytes()
    except OSError as error:
        here = "" if path.is_absolute() else f" (seen from {Path.cwd()})"
        raise UserError(f"cannot read the file {path}{here}: {error.strerror}") from error
    # The path is part of the name: files of one name in two folders are two modules.
    name = FILE_MODULE + hashlib.sha256(str(where).encode()).hexdigest()[:16]
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
        # Compiled from these bytes: a .pyc may be of a version written in the same second.
        exec(compile(source, str(where), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except (Exception, SystemExit) as error:  # the file is the user's: it may raise anything
        del sys.modules[name]
        raise UserError(_failed_line(path, where, error)) from error
    return module


def _failed_line(path: Path, where: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(where):
        return f"{path}, line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(where)]
    place = f"{path}, line {lines[-1]}" if lines else str(path)
    return f"{place}: {type(error).__name__}: {error}"
