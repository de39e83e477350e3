"""The paper's tables: progress on standard error, results on standard output."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nscaching.cli.loading import load_graph
from nscaching.cli.progress import Course, Signals, WatchedTraining, courses
from nscaching.cli.tables import note, print_json, print_table, say
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.paper.published import TABLES
from nscaching.paper.reproduce import loop
from nscaching.paper.reproduce.cell_training import ReproduceListener
from nscaching.paper.reproduce.selection import Selection
from nscaching.paper.reproduce.table import sentence
from nscaching.training.display import Bar
from nscaching.training.listener import Listener, Stage


class _Listener(ReproduceListener):
    """Shows a progress bar for each training; stops at a signal or at the time limit."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.several: _Several | None = None

    @property
    def late(self) -> bool:
        return self.signals.late

    def stop(self) -> bool:
        return self.signals()

    def load(self, data: str) -> KnowledgeGraph:
        return load_graph(data)

    def note(self, text: str) -> None:
        if self.several:
            self.several.say(text)
        else:
            note(text)

    @contextmanager
    def training(self, name: str, config: TrainConfig) -> Iterator[Listener]:
        if not self.where:
            with WatchedTraining(name, config, self.signals, series=True) as display:
                yield display
            return
        self.several = self.several or _Several()
        with self.several.training(self.where, name, config) as other:
            yield other


class _Several(Bar):
    """The bar of all trainings that run at the same time; it is there while there are some."""

    def __init__(self) -> None:
        super().__init__("training")
        self.running: dict[str, Course] = {}  # by their process

    @contextmanager
    def training(self, where: str, name: str, config: TrainConfig) -> Iterator[Listener]:
        self.bars.start()
        self.say(f"{name}; on {where}")
        self.running[where] = Course(config.epochs)
        try:
            yield _OneOfSeveral(self, where)
        finally:
            del self.running[where]
            if not self.running:
                self.bars.stop()

    def show_all(self) -> None:
        running = self.running.values()
        done, total = sum(c.epoch + c.part for c in running), sum(c.epochs for c in running)
        self.show(done, float(total), courses(self.running))


class _OneOfSeveral(Listener):
    def __init__(self, several: _Several, where: str) -> None:
        self.several, self.course = several, several.running[where]

    def begin(self, history: list[dict[str, Any]]) -> None:
        self.course.epoch = sum("split" not in record for record in history)
        self.several.show_all()

    def note(self, text: str) -> None:
        self.several.say(f"note: {text}")

    def record(self, record: dict[str, Any]) -> None:
        self.course.epoch = record["epoch"]
        self.several.show_all()

    def progress(self, stage: Stage, done: int, total: int) -> None:
        self.course.hear(stage, done, total)
        self.several.show_all()


def reproduce(
    table: str,
    selection: Selection,
    out: Path,
    time_limit: float,
    table_only: bool,
    processes: int = 1,
) -> loop.Outcome:
    with Signals(time_limit or math.inf) as signals:
        listener = _Listener(signals)
        return loop.reproduce(TABLES[table], selection, out, listener, table_only, processes)


def outcome(made: loop.Outcome, as_json: bool) -> None:
    results = made.results
    if as_json:
        print_json(
            {
                "task": results.table.name,
                "rows": [row.to_dict() for row in made.rows],
                "summaries": made.summaries,
                "left_out": results.left_out,
                "trained": made.trained,
                "left": made.left,
                "failed": made.failed,
                "results": [str(path) for path in results.files],
                "table": str(made.page),
            }
        )
        return
    rows = []
    for row in made.rows:
        name, figure = " ".join(row.cell[:4]).strip(), row.first
        difference = figure.measure.text(figure.difference, "+")
        rows.append([name, row.cell.settings, str(figure), figure.papers, difference])
        rows[-1] += [row.verdict, f"{row.seconds:,.1f}", str(len(row.lines))]
    first = results.table.measures[0].heading
    headings = ["cell", "settings", first, "paper", "difference", "verdict", "seconds", "seeds"]
    print_table(headings, rows, results.table.title)
    if short := sum(row.short > 0 for row in made.rows):
        say(f"{short} rows are of fewer epochs than the paper's; {made.page.name} says which")
    say(*results.notes, *map(sentence, made.summaries))
    left = f"; left for the next time: {made.left} of the trainings" if made.left else ""
    say(f"table: {made.page}", f"results: {', '.join(map(str, results.files))}{left}")
