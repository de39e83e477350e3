"""Errors that are the user's to mend: one clear line, no traceback, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Diverged", "Stopped", "UserError", "unknown", "user_path"]

LONGEST = 1000  # characters of a message


class UserError(Exception):
    """Something in the input, not in the program. Its message is one complete line.

    It is made one, whatever names and other messages went into it, and is cut if it is very long.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(message.splitlines())
        super().__init__(line if len(line) <= LONGEST else f"{line[:700]} … {line[-200:]}")


class Diverged(UserError):  # noqa: N818  (it is a UserError, which has the suffix)
    """The parameters, or what comes of them, are not finite any more."""


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and did so after the step; its message says how to go on."""

    code = 130
    """Of the process that ends by it."""


def unknown(kind: str, name: str, known: Iterable[str], most: int = 5) -> UserError:
    """Build the error for a name that is not known, with the nearest known ones.

    A short list of known names is shown whole; of a long one, only the nearest names.
    """
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
