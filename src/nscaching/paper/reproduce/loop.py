"""Trains the missing cells of a table, one after the other, and writes the table."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nscaching.errors import Stopped, UserError, counted, flag
from nscaching.files import read_text, write_text
from nscaching.paper.published import PaperTable
from nscaching.paper.reproduce.cell_training import ReproduceListener, expected_seconds, train_cell
from nscaching.paper.reproduce.plan import Training, plan
from nscaching.paper.reproduce.results import Results
from nscaching.paper.reproduce.selection import Selection
from nscaching.paper.reproduce.table import MADE, Row, Summary, markdown, rows, summaries
from nscaching.runs.escaping import duration
from nscaching.runs.folder import CARD


@dataclass
class Outcome:
    """A table, and the outcome of its training runs."""

    results: Results
    wanted: list[Training]
    rows: list[Row] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    trained: int = 0
    left: int = 0  # trainings that the time limit left for the next time
    failed: list[str] = field(default_factory=list)

    @property
    def page(self) -> Path:
        return self.results.folder / f"{self.results.table.name}.md"

    def write(self) -> None:
        self.rows = rows(self.results, self.wanted)
        self.summaries = summaries(self.results.table, self.rows)
        write_text(self.page, markdown(self.results, self.rows, self.summaries))


def reproduce(
    table: PaperTable,
    selection: Selection,
    out: Path,
    listener: ReproduceListener | None = None,
    table_only: bool = False,
) -> Outcome:
    """Train the selected cells that are not yet done, and write the table of all results.

    A training run that ``listener`` stops leaves a checkpoint, from which the next call resumes.
    """
    listener = listener or ReproduceListener()
    outcome = Outcome(Results(out, table), plan(table, selection))
    results, page = outcome.results, outcome.page
    if page.exists() and not read_text(page).startswith(MADE):
        raise UserError(f"{page} was not made by nscaching reproduce; choose another {flag('out')}")
    if table_only and not results.list:
        raise UserError(f"{results.path}: there are no results yet to make a table of")
    if not table_only:
        with results.locked():
            try:
                _train_missing(outcome, listener)
            except KeyboardInterrupt:
                of = len(outcome.wanted)
                kept = f"{of - len(results.missing(outcome.wanted))} of {of} trainings are kept"
                listener.note(f"{kept} in {results.path}; the same command resumes there")
                raise
    outcome.write()
    return outcome


def _train_missing(outcome: Outcome, listener: ReproduceListener) -> None:
    """Train one after the other; a failure does not end the work, a signal or a time limit does."""
    results, wanted = outcome.results, outcome.wanted
    graphs = {name: listener.load(name) for name in dict.fromkeys(t.cell.data for t in wanted)}
    results.data |= {name: graph.fingerprint for name, graph in graphs.items()}
    missing = _missing(wanted, results)
    done = set(wanted) - set(missing)
    listener.note(f"{counted(len(wanted), 'training')} in all, {len(done)} of them done already")
    for training in done:
        results.clear(training)  # left by a process that was killed too early
    failed: set[Training] = set()
    for i, training in enumerate(missing):
        place = f"{i + 1}/{len(missing)} {training}"
        try:
            if listener.late:
                raise Stopped("not begun")
            if results.checkpoints(training).files():
                listener.note(f"{place}: resumes where it stopped")
            if starts := failed.intersection(training.starts):
                raise UserError(f"its start failed: {starts.pop()}")
            name = f"{place}{_time_left(missing[i:], results)}"
            line = train_cell(training, graphs[training.cell.data], results, name, listener)
        except UserError as error:  # such as a loss that is not finite: others may still learn
            failed.add(training)
            outcome.failed.append(f"{training}: {error}")
            listener.note(f"{place}: failed: {error}")
        except Stopped as stopped:
            if not listener.late:
                raise
            listener.note(f"{place}: {stopped}; the time limit is reached")
            outcome.left = len(missing) - i
            return
        else:
            results.add(line)
            results.clear(training)
            outcome.trained += 1
            outcome.write()
            first = results.table.measures[0]
            value = first.text(line["test"][first.name] * first.scale)
            seconds = f"{line['train_seconds']:.1f} s of training, {line['seconds']:.1f} s in all"
            kernels = f"{line['record']['kernels']} kernels{_time_left(missing[i + 1 :], results)}"
            listener.note(f"{place}: test {first.heading} {value}, {seconds}, {kernels}")
        if listener.stop() and not listener.late:
            raise Stopped("stopped")
        gc.collect()  # cycles of a finished training hold memory, that of a GPU too


def _missing(wanted: Sequence[Training], results: Results) -> list[Training]:
    """Return the trainings to do: those without a result, and their starts without a folder."""
    missing = set(results.missing(wanted))
    starts = {start for training in missing for start in training.starts}
    missing |= {start for start in starts if not (results.start_folder(start) / CARD).is_file()}
    return [training for training in wanted if training in missing]


def _time_left(trainings: Sequence[Training], results: Results) -> str:
    seconds = expected_seconds(trainings, results) if trainings else None
    return "" if seconds is None else f"; about {duration(seconds)} left for all"
