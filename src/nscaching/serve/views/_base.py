"""A view: one address for people, one for programs, and the same answer behind both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nscaching.serve.parameters import Parameter
from nscaching.serve.refusals import Refusal
from nscaching.serve.runs import ServedRun


@dataclass(frozen=True)
class Request:
    """What a view is asked for."""

    runs: Mapping[str, ServedRun]
    name: str  # of the run in the address; empty: none
    values: Mapping[str, Any]  # of the parameters

    @property
    def run(self) -> ServedRun:
        return self.run_called(self.name)

    def run_called(self, name: str) -> ServedRun:
        if name not in self.runs:
            choices = [{"name": one, "label": one} for one in self.runs]
            raise Refusal("unknown_run", "no run has this name", choices)  # type: ignore[arg-type]
        return self.runs[name]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        return self.values[name]


@dataclass(frozen=True)
class View:
    """A page, and the same as JSON under /api."""

    name: str
    path: str
    summary: str
    shape: type
    work: Callable[[Request], Awaitable[Any]]
    parameters: tuple[Parameter, ...] = ()
    page: bool = True  # for people too
    form: bool = False  # without parameters the page asks for them


TOP = Parameter("top", "how many", "number", default=10, least=1, most=100)
HEAD = Parameter("head", "the head entity, by name or label")
RELATION = Parameter("relation", "the relation, by name or label")
TAIL = Parameter("tail", "the tail entity, by name or label")
