"""The page: data from the modules beside this one, HTML from the templates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nscaching.runs.folder import resume_command
from nscaching.runs.layout import has_ended
from nscaching.runs.report import markup
from nscaching.runs.report.cache import cache
from nscaching.runs.report.examples import EACH, examples
from nscaching.runs.report.results import held_out, relations
from nscaching.runs.report.setup import data, settings
from nscaching.runs.report.training import panels

if TYPE_CHECKING:
    from nscaching.runs.run import Run

TEMPLATES = Path(__file__).with_name("templates")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(run: Run, progress: Callable[[int, int], None] | None = None) -> str:
    """Return the report of a run; rank the held-out triples unless training has just done so."""
    ranking = held_out(run, progress)
    stopped = run.path is not None and not has_ended(run.path)
    return (
        templates()
        .get_template("page.html")
        .render(
            run=run,
            policy=POLICY,
            style=(TEMPLATES / "style.css").read_text(encoding="utf-8"),
            epochs=sum("split" not in record for record in run.history),
            resume=resume_command(run.path) if run.path is not None and stopped else "",
            panels=panels(run),
            ranking=ranking,
            relations=relations(run, ranking) if ranking else None,
            examples=examples(run, ranking) if ranking else [],
            each=EACH,
            cache=cache(run),
            data=data(run),
            settings=settings(run),
        )
    )


def templates() -> Environment:
    """Return the templates; every value that they print is escaped and shown by ``text``."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=markup.text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for function in (markup.text, markup.name, markup.number, markup.fixed, markup.place):
        environment.filters[function.__name__] = function
    return environment
