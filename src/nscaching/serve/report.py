"""The report of a run for browsers elsewhere: made anew, without a path of this machine."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

from nscaching.runs.report.markup import POLICY as OF_A_FILE
from nscaching.serve.pages import link
from nscaching.serve.runs import ServedRun

# The page has its style within itself, and no script.
POLICY = f"{OF_A_FILE}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def rendered(served: ServedRun) -> str:
    """Return the report; the test triples are ranked for it. Only a thread may ask."""
    from nscaching.runs.report.page import render

    run = copy.copy(served.whole())
    source = run.graph.source
    run.graph = copy.copy(run.graph)  # with its indices
    run.graph.source = replace(source, data=_last(source.data), labels=_last(source.labels))
    run.config = run.config.changed(pretrain=_last(run.config.pretrain))
    run.path = None
    content = served.without_paths(render(run))
    home = f'<a style="color: inherit" href="{link("run", served.slug)}">← explorer</a>'
    back = f'<p class="eyebrow">{home}</p>\n'
    return content.replace("<body>\n", f"<body>\n{back}", 1)


def _last(path: str) -> str:
    return Path(path).name if "/" in path else path
