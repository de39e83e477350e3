"""The page: data from the modules beside this one, HTML from the templates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nscaching.config import TrainConfig
from nscaching.data.graph import MAPPING_CLASSES, SPLITS, KnowledgeGraph
from nscaching.errors import as_flag
from nscaching.runs.card import command
from nscaching.runs.folder import resume_command
from nscaching.runs.layout import has_ended
from nscaching.runs.report import markup
from nscaching.runs.report.cache import cache
from nscaching.runs.report.charts import panels
from nscaching.runs.report.results import EACH, MOST_RELATIONS, examples, held_out
from nscaching.runs.settings import full_record

if TYPE_CHECKING:
    from nscaching.runs.run import Run

TEMPLATES = Path(__file__).with_name("templates")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(run: Run, progress: Callable[[int, int], None] | None = None) -> str:
    """Return the report of a run; rank the held-out triples unless training has just done so."""
    ranking = held_out(run, progress)
    stopped = run.path is not None and not has_ended(run.path)
    settings, defaults = run.config.flat(), TrainConfig().flat()
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    page = templates().get_template("page.html")
    return page.render(
        run=run,
        policy=POLICY,
        style=(TEMPLATES / "style.css").read_text(encoding="utf-8"),
        epochs=sum("split" not in record for record in run.history),
        resume=resume_command(run.path) if run.path is not None and stopped else "",
        panels=panels(run),
        ranking=ranking,
        most_relations=MOST_RELATIONS,
        examples=examples(run, ranking) if ranking else [],
        each=EACH,
        cache=cache(run),
        sizes=sizes(run.graph),
        classes=classes(run.graph),
        changed=changed,
        usual={name: value for name, value in settings.items() if name not in changed},
        defaults=defaults,
        command=command(run),
        record=full_record(run.graph, run.record),
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
    shown = markup.text, markup.name, markup.number, markup.fixed, markup.place, as_flag
    environment.filters |= {function.__name__: function for function in shown}
    return environment


def sizes(graph: KnowledgeGraph) -> dict[str, str]:
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=len(graph.entities))
    found = {
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        **{f"{split} triples": len(graph.split(split)) for split in SPLITS},
        "median of an entity’s triples": float(np.median(degree)),
        "most triples of one": int(degree.max(initial=0)),
    }
    return {name: markup.number(value) for name, value in found.items()}


def classes(graph: KnowledgeGraph) -> list[tuple[str, int, int]]:
    """Return the numbers of relations and of training triples by mapping class."""
    of_relation = np.array(graph.mapping_classes)
    triples = np.bincount(graph.train[:, 1], minlength=len(of_relation))
    return [
        (kind, int(here.sum()), int(triples[here].sum()))
        for kind in MAPPING_CLASSES
        if (here := of_relation == kind).any()
    ]
