"""Errors that the user can mend: one clear line, no traceback, exit code 2."""

import difflib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

LONGEST = 1000  # characters of a message
MOST = 20  # known names that an error lists; of more it names the nearest
FEW = 4  # known names that an error lists without a guess
DIVERGED = "the model gives scores that are not finite: its training diverged"

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

    code = 130  # of the exit of a process that ends by this error


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
    return "--" + name.replace("_", "-")


def check_bounds(name: str, value: float, least: float, most: float = math.inf) -> None:
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        raise UserError(f"{flag(name)} must be {bound}, not {value}")


def unknown(kind: str, name: str, known: Iterable[str], most: int = MOST) -> UserError:
    """Build the error for an unknown name: all known names, or of more than ``most`` the nearest.

    If none is near, it names three, to show what names look like.
    """
    names = list(known)
    folded = {n.casefold(): n for n in names}
    if len(names) <= most:
        said = f"known: {', '.join(names)}"
        if len(names) > FEW and (meant := _nearest(name.casefold(), folded)):
            said += f" (did you mean {folded[meant]}?)"
    else:
        near = difflib.get_close_matches(name.casefold(), folded, n=5, cutoff=0.5)
        said = f"nearest: {', '.join(folded[n] for n in near)}"
        if not near:
            said = (
                f"none of the {len(names):,} known is close to it; some are {', '.join(names[:3])}"
            )
    return UserError(f"unknown {kind} {name!r}; {said}")


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is clearly the nearest, or an empty text."""
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.7)
    likeness = [difflib.SequenceMatcher(None, each, name).ratio() for each in near]
    return near[0] if len(near) == 1 or likeness[:1] > likeness[1:] else ""


def counted(number: int, one: str, many: str = "") -> str:
    """Return "1 triple" or "2 triples"; ``many`` is a plural that is not formed by an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


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
