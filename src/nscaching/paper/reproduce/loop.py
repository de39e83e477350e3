"""Trains the missing cells of a table, one or several at a time, and writes the table."""

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import Stopped, UserError, counted, flag
from nscaching.files import read_text, write_text, writing
from nscaching.paper.published import PaperTable
from nscaching.paper.reproduce.cell_training import ReproduceListener, expected_seconds, train_cell
from nscaching.paper.reproduce.plan import Training, plan
from nscaching.paper.reproduce.results import Line, Results
from nscaching.paper.reproduce.selection import Selection
from nscaching.paper.reproduce.table import MADE, Row, Summary, markdown, rows, summaries
from nscaching.runs.escaping import duration
from nscaching.runs.folder import CARD
from nscaching.training.listener import Listener
from nscaching.training.processes import (
    Here,
    Process,
    Processes,
    ProcessLostError,
    how_many,
    pool,
)


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
    processes: int = 1,
) -> Outcome:
    """Train the selected cells that are not yet done, and write the table of all results.

    A training run that ``listener`` stops leaves a checkpoint, from which the next call resumes.
    ``processes`` is how many trainings run at the same time, a process each; 0: one for each
    visible GPU.
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
                _train_missing(outcome, listener, processes)
            except KeyboardInterrupt:
                of = len(outcome.wanted)
                kept = f"{of - len(results.missing(outcome.wanted))} of {of} trainings are kept"
                listener.note(f"{kept} in {results.path}; the same command resumes there")
                raise
    outcome.write()
    return outcome


def _train_missing(outcome: Outcome, listener: ReproduceListener, processes: int) -> None:
    results, wanted = outcome.results, outcome.wanted
    graphs = {name: listener.load(name) for name in dict.fromkeys(t.cell.data for t in wanted)}
    results.data |= {name: graph.fingerprint for name, graph in graphs.items()}
    missing = _missing(wanted, results)
    done = set(wanted) - set(missing)
    listener.note(f"{counted(len(wanted), 'training')} in all, {len(done)} of them done already")
    for training in done:
        results.clear(training)  # left by a process that was killed too early
    devices = [training.config.device for training in missing] or ["cpu"]
    count = max(1, min(how_many(processes, devices), len(missing)))
    with pool(count, devices, listener.note, _train_cell, graphs, results) as running:
        _Work(outcome, listener, missing, running).run()


def _train_cell(
    graphs: dict[str, KnowledgeGraph], results: Results, training: Training, listener: Listener
) -> Line:
    return train_cell(training, graphs[training.cell.data], results, listener)


class _Work:
    """Trains what is missing, each training after those that it starts from.

    A failure does not end the work, a signal or a time limit does.
    """

    def __init__(
        self,
        outcome: Outcome,
        listener: ReproduceListener,
        missing: Sequence[Training],
        running: Here | Processes,
    ) -> None:
        self.outcome, self.results = outcome, outcome.results
        self.listener, self.running = listener, running
        self.waiting = list(missing)
        self.open: dict[Training, ExitStack] = {}  # and what shows them
        self.failed: set[Training] = set()
        self.stopped: Stopped | None = None
        numbers = enumerate(missing, 1)
        self.places = {training: f"{i}/{len(missing)} {training}" for i, training in numbers}

    def run(self) -> None:
        try:
            while self.running.busy or (self.waiting and not self.stopped):
                self._go_on()
        finally:
            for shown in self.open.values():
                shown.close()
        if self.stopped and not self.listener.late:
            raise self.stopped
        self.outcome.left = len(self.waiting)

    def _go_on(self) -> None:
        if not self.stopped and (training := self._next()) and (free := self.running.free()):
            self._begin(training, free)
            return
        for training, future in self.running.wait():
            self._end(training, future.result)
            del future
            gc.collect()  # cycles of a finished training hold memory, that of a GPU too
        if self.running.count > 1 and not self.stopped and self.listener.stop():
            self._stop(Stopped("stopped"))

    def _next(self) -> Training | None:
        """Return the first training that waits for no start, nor for one of equal settings.

        With few epochs, a start and a cell of Bernoulli sampling share the folder of checkpoints.
        """
        to_come = {*self.waiting, *self.open}
        folders = {self.results.checkpoints(training).folder for training in self.open}
        for training in self.waiting:
            free = self.results.checkpoints(training).folder not in folders
            if free and not to_come.intersection(training.starts):
                return training
        return None

    def _begin(self, training: Training, free: Here | Process) -> None:
        place, checkpoints = self.places[training], self.results.checkpoints(training)
        if self.listener.late:
            self.listener.note(f"{place}: not begun; the time limit is reached")
            self._stop(Stopped("not begun"))
            return
        if checkpoints.files():
            self.listener.note(f"{place}: resumes where it stopped")
        name = f"{place}{self._time_left()}"
        self.waiting.remove(training)
        if starts := self.failed.intersection(training.starts):
            self._fail(training, f"its start failed: {starts.pop()}")
            return
        with writing(checkpoints.folder):  # here, where empty folders are removed too
            checkpoints.folder.mkdir(parents=True, exist_ok=True)
        self.listener.where, shown = free.where, ExitStack()
        self.open[training] = shown
        other = shown.enter_context(self.listener.training(name, training.config))
        free.begin(training, other or self.listener, training)

    def _end(self, training: Training, outcome: Callable[[], Line]) -> None:
        try:
            with self.open.pop(training):
                line = outcome()
        except (UserError, ProcessLostError) as error:
            self._fail(training, str(error))  # such as a loss that is not finite
        except Stopped as stopped:
            self.waiting.append(training)
            if self.listener.late:
                self.listener.note(f"{self.places[training]}: {stopped}; the time limit is reached")
            self._stop(stopped)
            return
        else:
            self._keep(training, line)
        if self.listener.stop() and not self.listener.late:
            self._stop(Stopped("stopped"))

    def _fail(self, training: Training, reason: str) -> None:
        self.failed.add(training)
        self.outcome.failed.append(f"{training}: {reason}")
        self.listener.note(f"{self.places[training]}: failed: {reason}")

    def _keep(self, training: Training, line: Line) -> None:
        results = self.results
        results.add(line)
        results.clear(training)
        self.outcome.trained += 1
        self.outcome.write()
        first = results.table.measures[0]
        value = first.text(line["test"][first.name] * first.scale)
        seconds = f"{line['train_seconds']:.1f} s of training, {line['seconds']:.1f} s in all"
        kernels = f"{line['record']['kernels']} kernels{self._time_left()}"
        place = self.places[training]
        self.listener.note(f"{place}: test {first.heading} {value}, {seconds}, {kernels}")

    def _stop(self, stopped: Stopped) -> None:
        self.stopped = self.stopped or stopped
        self.running.stop()

    def _time_left(self) -> str:
        to_come = [*self.open, *self.waiting]
        seconds = expected_seconds(to_come, self.results) if to_come else None
        if seconds is None:
            return ""
        return f"; about {duration(seconds / self.running.count)} left for all"


def _missing(wanted: Sequence[Training], results: Results) -> list[Training]:
    """Return the trainings to do: those without a result, and their starts without a folder."""
    missing = set(results.missing(wanted))
    starts = {start for training in missing for start in training.starts}
    missing |= {start for start in starts if not (results.start_folder(start) / CARD).is_file()}
    return [training for training in wanted if training in missing]
