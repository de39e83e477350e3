"""The page: a header with the metrics, then a section for each question that a reader has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.runs.folder import resume_command
from nscaching.runs.report.cache import caches
from nscaching.runs.report.examples import examples
from nscaching.runs.report.markup import number, text
from nscaching.runs.report.ranking import Ranking, held_out
from nscaching.runs.report.results import LONG, breakdowns, headline
from nscaching.runs.report.setup import COMMAND, data, settings
from nscaching.runs.report.training import curves
from nscaching.runs.layout import METRICS, has_ended

if TYPE_CHECKING:
    from nscaching.runs.run import Run

__all__ = ["BEGIN", "END", "render"]

STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# How every report has begun and ended, older ones too: it is known by that.
BEGIN = '<!doctype html>\n<html lang="en">\n<head>\n'
END = "<footer>Written by nscaching.</footer>\n</body>\n</html>\n"


def render(run: Run, progress: Callable[[int, int], None] | None = None) -> str:
    """Return the report of a run; ranks the held-out triples if training has not just done so."""
    ranking = held_out(run, progress)
    title = f"{text(run.config.model, 60)} with {text(run.config.sampler, 60)} on "
    title += text(run.graph.name, 60)
    score = f" · MRR {ranking.figures['mrr']:.3f}" if ranking else ""
    results = breakdowns(run, ranking) + examples(run, ranking) if ranking else ""
    return f"""{BEGIN}<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}{score}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<p class="eyebrow">Run <bdi>{text(run.name)}</bdi></p>
<h1>{title}</h1>
<p>{_summary(run, ranking)}</p>
{_unfinished(run)}{headline(run, ranking)}</header>
<main>
{curves(run)}{results}{caches(run)}{data(run)}{settings(run)}</main>
{END}"""


def _summary(run: Run, ranking: Ranking | None) -> str:
    """Say which epoch was kept, how long training took and where."""
    epochs = _epochs(run)
    ranked = f"Filtered {LONG[ranking.split]} ranking" if ranking else "Parameters"
    parts = [f"{ranked} of epoch {number(run.best_epoch)}"]
    if epochs < run.best_epoch:  # the file was emptied or cut, so that nothing more is known
        parts.append(f"{METRICS} holds {number(epochs)} epochs")
    else:
        best = "the best by validation MRR" if run.result("valid") else "the last"
        parts[0] += f" of {number(epochs)}, {best}"
        if epochs < run.config.epochs and not _is_unfinished(run):
            ended = f"ended by --patience {run.config.patience}: " if run.config.patience else ""
            parts.append(f"{ended}{number(run.config.epochs)} epochs were asked for")
        parts.append(f"{run.train_seconds:,.1f} s of training")
    where = {key: run.record.get(key) for key in ("device", "kernels", "threads")}
    parts.append(f"on {text(where['device'] or run.model.entity.device.type)}")
    if where["kernels"]:
        parts[-1] += f" with {text(where['kernels'])} kernels"
    return " · ".join(parts)


def _epochs(run: Run) -> int:
    return sum("split" not in record for record in run.history)


def _is_unfinished(run: Run) -> bool:
    return run.path is not None and not has_ended(run.path)


def _unfinished(run: Run) -> str:
    """Say that training was stopped, or still goes on, and how to go on."""
    if run.path is None or not _is_unfinished(run):
        return ""
    done = f"{number(_epochs(run))} of {number(run.config.epochs)} epochs are done"
    command = f"<code>{text(resume_command(run.path), COMMAND)}</code>"
    return (
        f"<p><b>Not finished:</b> {done}. If training was stopped, {command} goes on with it.</p>\n"
    )
