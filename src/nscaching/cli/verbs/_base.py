"""What the verbs share: a verb is a dataclass whose fields are its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Protocol

from tyro.conf import Positional, arg

__all__ = ["Device", "Json", "RunPath", "Trust", "Verb"]

RunPath = Annotated[Positional[Path], arg(metavar="RUN", help="A run folder.")]
Json = Annotated[bool, arg(help="Print JSON on standard output instead of a table.")]
Trust = Annotated[
    bool, arg(help="Run code from outside the package that a run folder or a file names.")
]
Device = Literal["auto", "cpu", "cuda"]


class Verb(Protocol):
    """Something a user can ask for."""

    def run(self) -> None:
        """Do it."""
