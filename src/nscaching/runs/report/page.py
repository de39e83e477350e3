"""The page: data from the modules beside this one, HTML from the templates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nscaching.config import TrainConfig
from nscaching.data.graph import MAPPING_CLASSES, KnowledgeGraph
from nscaching.errors import UserError, as_flag, flag, reading, user_path
from nscaching.files import check_new_file, replacing
from nscaching.runs.card import command
from nscaching.runs.folder import REPORT, has_ended, resume_command
from nscaching.runs.report import markup
from nscaching.runs.report.charts import panels
from nscaching.runs.report.results import EACH, cache, examples, held_out
from nscaching.runs.settings import full_record

if TYPE_CHECKING:
    from jinja2 import Environment

    from nscaching.runs.run import Run

TEMPLATES = Path(__file__).with_name("templates")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MOST_RELATIONS = 1000  # that are listed

# The first and last bytes of every report, also of reports by older versions.
BEGIN = b'<!doctype html>\n<html lang="en">\n<head>\n'
END = b"<footer>Written by nscaching.</footer>\n</body>\n</html>\n"


def report(
    run: Run,
    path: str | Path = "",
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the report, one HTML page, to a path or else into the run folder.

    The report in the run's own folder is replaced; any other file only with ``overwrite``.
    ``progress`` receives the progress of a ranking, if one is needed.
    """
    if not path and run.path is None:
        raise UserError("the run is not saved: say where to write its report")
    target = user_path(path or (run.path or Path()) / REPORT)
    check_new_file(target, flag("out", "path"), overwrite or _is_own(run, target))
    content = render(run, progress)
    with replacing(target, shared=True) as partial:
        partial.write_text(content, encoding="utf-8", newline="\n")
    return target


def _is_own(run: Run, path: Path) -> bool:
    """Say whether a file is a report that nscaching wrote into the run's folder."""
    if run.path is None or path.is_symlink() or not path.is_file():
        return False
    if path.resolve() != run.path.resolve() / REPORT:
        return False
    with reading(path):
        content = path.read_bytes()
    return content.startswith(BEGIN) and content.endswith(END)


def render(run: Run, progress: Callable[[int, int], None] | None = None) -> str:
    """Return the report of a run; rank the held-out triples unless training has just done so."""
    ranking = held_out(run, progress)
    stopped = run.path is not None and not has_ended(run.path)
    degrees = np.bincount(run.graph.train[:, [0, 2]].ravel(), minlength=len(run.graph.entities))
    settings, defaults = run.config.flat(), TrainConfig().flat()
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
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
            most_relations=MOST_RELATIONS,
            examples=examples(run, ranking) if ranking else [],
            each=EACH,
            cache=cache(run),
            median_degree=float(np.median(degrees)),
            most_degree=int(degrees.max(initial=0)),
            classes=classes(run.graph),
            changed=changed,
            usual={name: value for name, value in settings.items() if name not in changed},
            defaults=defaults,
            command=command(run),
            record=full_record(run.graph, run.record),
        )
    )


def templates() -> Environment:
    """Return the templates; every value that they print is escaped and shown by ``text``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

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


def classes(graph: KnowledgeGraph) -> list[tuple[str, int, int]]:
    """Return the numbers of relations and of training triples by mapping class."""
    of_relation = np.array(graph.mapping_classes)
    triples = np.bincount(graph.train[:, 1], minlength=len(of_relation))
    return [
        (kind, int(here.sum()), int(triples[here].sum()))
        for kind in MAPPING_CLASSES
        if (here := of_relation == kind).any()
    ]
