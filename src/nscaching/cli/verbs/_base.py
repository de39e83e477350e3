"""A verb is a dataclass: its fields are the flags of the command line."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_type_hints

from tyro.conf import Positional, arg

from nscaching.cli.rows import print_csv
from nscaching.cli.tables import print_json
from nscaching.config import BY_GRAPH, GROUPS, TrainConfig
from nscaching.errors import UserError, as_flag

if TYPE_CHECKING:
    from nscaching.runs.run import Run as Run
else:
    Run = Any  # as an annotation: the class imports PyTorch, which the help need not wait for

Where = Annotated[
    Positional[str],
    arg(metavar="WHERE", help="A known data set, a folder with train/valid/test, or a file."),
]
RunPath = Annotated[Positional[Path], arg(metavar="RUN", help="A run folder.")]
RunPaths = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN", help="Run folders.")]
Memory = Annotated[
    str,
    arg(
        help="Memory for reading tables, such as 4GiB: what needs more is read through DuckDB, and "
        "its\narrays are kept. Empty: no limit."
    ),
]
Json = Annotated[bool, arg(help="Print JSON on standard output instead of a table.")]
Csv = Annotated[bool, arg(help="Print CSV on standard output instead of a table, with all digits.")]
Trust = Annotated[
    bool, arg(help="Run code from outside the package that a run folder or a file names.")
]


def _flags_of(kind: type[Any]) -> type[Any]:
    """Return the fields of a settings class, unchecked, with the help that the graph decides."""
    by_graph = arg(help_behavior_hint="(default: by the graph)")
    hints: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        group = _flags_of(hint) if name in GROUPS else hint
        hints[name] = Annotated[hint, by_graph] if name in BY_GRAPH else group
    defaults = {f.name: f.default for f in fields(kind) if f.name not in GROUPS}
    defaults |= {name: field(default_factory=hints[name]) for name in hints if name in GROUPS}
    body = {"__annotations__": hints, "__doc__": kind.__doc__, "__post_init__": lambda self: None}
    return dataclass(frozen=True)(type(kind.__name__, (kind,), body | defaults))


if TYPE_CHECKING:
    Settings = TrainConfig
else:
    Settings = _flags_of(TrainConfig)


class Verb(Protocol):
    """A command of the command line."""

    def run(self) -> None:
        """Call the library and print the result."""


@dataclass(frozen=True, kw_only=True)
class AskRun(ABC):
    """A verb that loads a run, asks it and prints the answer."""

    path: RunPath
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        run = self.load()
        result = self.ask(run)
        if not self.print_plain(result):
            self.show(run, result)

    def print_plain(self, result: dict[str, Any]) -> bool:
        return print_plain(self.json, False, result, ())

    def load(self) -> Run:
        from nscaching.runs.run import Run

        return Run.load(self.path, self.device, self.trust)

    @abstractmethod
    def ask(self, run: Run) -> dict[str, Any]:
        """Return the answer of the run, as ``--json`` prints it."""

    @abstractmethod
    def show(self, run: Run, result: dict[str, Any]) -> None:
        """Print the answer for people to read."""


@dataclass(frozen=True, kw_only=True)
class AskTable(AskRun):
    """A verb whose answer is a table, which programs may read as CSV too."""

    csv: Csv = False

    def run(self) -> None:
        one_form(self.json, self.csv)
        super().run()

    def print_plain(self, result: dict[str, Any]) -> bool:
        return print_plain(self.json, self.csv, result, self.rows(result) if self.csv else ())

    @abstractmethod
    def rows(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answer as rows, a line of CSV each."""


def print_plain(json: bool, csv: bool, whole: object, rows: Iterable[Mapping[str, Any]]) -> bool:
    """Print an answer for programs to read, if one asks; return whether one does."""
    if json:
        print_json(whole)
    elif csv:
        print_csv(rows)
    return json or csv


def one_form(json: bool, csv: bool) -> None:
    if json and csv:
        raise UserError(f"{as_flag('json')} and {as_flag('csv')} exclude each other")
