"""Errors that the user can mend: one clear line, no traceback, exit code 2."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

LONGEST = 1000  # characters of a message

_on_command_line: ContextVar[bool] = ContextVar("on_command_line", default=False)


class UserError(ValueError):
    """A mistake in the input, not in the program. The message is one line, cut if very long."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.splitlines())
        super().__init__(line if len(line) <= LONGEST else f"{line[:700]} … {line[-200:]}")


class Diverged(UserError):  # noqa: N818  (it is a UserError, which has the suffix)
    """The parameters, or figures computed from them, became non-finite."""


class Stopped(KeyboardInterrupt):
    """A training run stopped after a step, as asked; the message says how to resume it."""

    code = 130
    """The exit code of a process that ends by this error."""


@contextmanager
def naming_flags() -> Iterator[None]:
    """Let messages name flags instead of Python's parameters."""
    before = _on_command_line.set(True)
    try:
        yield
    finally:
        _on_command_line.reset(before)


def flag(name: str, python: str = "") -> str:
    """Return how a message names a parameter: --batch-size to a user of the command line.

    In Python that is batch_size, or ``python`` where Python has another name.
    """
    return as_flag(name) if _on_command_line.get() else python or name


def as_flag(name: str) -> str:
    """Return the flag of a parameter, for a command line."""
    return "--" + name.replace("_", "-")


def unknown(kind: str, name: str, known: Iterable[str], most: int = 5) -> UserError:
    """Build the error for an unknown name: all known names, or of more than 20 the nearest."""
    names = list(known)
    if len(names) <= 20:
        return UserError(f"unknown {kind} {name!r}; known: {', '.join(names)}")
    folded = {n.casefold(): n for n in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=most, cutoff=0.5)
    if not near:
        return UserError(
            f"unknown {kind} {name!r}; none of the {len(names):,} known is close to it"
        )
    return UserError(f"unknown {kind} {name!r}; nearest: {', '.join(folded[n] for n in near)}")


def user_path(path: str | Path) -> Path:
    """Return a path as the user means it: a leading ~ is the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{path}: there is no such home folder") from None


@contextmanager
def reading(path: Path | str, *errors: type[Exception]) -> Iterator[None]:
    """Turn an OSError, a ValueError or one of ``errors`` into one line that names the path."""
    caught: tuple[type[Exception], ...] = (OSError, ValueError, RecursionError, *errors)
    try:
        yield
    except UserError:
        raise
    except caught as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot read it: {reason}") from error
