"""A verb is a dataclass: its fields are the flags of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Protocol

from tyro.conf import Positional, arg

__all__ = ["Device", "Json", "RunPath", "RunPaths", "Trust", "Verb", "Where"]

Where = Annotated[
    Positional[str],
    arg(metavar="WHERE", help="A known data set, a folder with train/valid/test, or a file."),
]
RunPath = Annotated[Positional[Path], arg(metavar="RUN", help="A run folder.")]
RunPaths = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="Run folders.")]
Json = Annotated[bool, arg(help="Print JSON on standard output instead of a table.")]
Trust = Annotated[
    bool, arg(help="Run code from outside the package that a run folder or a file names.")
]
Device = Literal["auto", "cpu", "cuda"]


class Verb(Protocol):
    """What a user can ask the command line for."""

    def run(self) -> None:
        """Call the library and print the result."""
