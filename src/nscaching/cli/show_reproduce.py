"""The paper's tables: progress on standard error, results on standard output."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nscaching.cli.loading import load_graph
from nscaching.cli.progress import Signals, WatchedTraining
from nscaching.cli.tables import note, print_json, print_table, say
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.paper.published import TABLES
from nscaching.paper.reproduce import loop
from nscaching.paper.reproduce.cell_training import ReproduceListener
from nscaching.paper.reproduce.selection import Selection
from nscaching.paper.reproduce.table import sentence
from nscaching.training.listener import Listener


class _Listener(ReproduceListener):
    """Shows a progress bar for each training; stops at a signal or at the time limit."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals

    @property
    def late(self) -> bool:
        return self.signals.late

    def stop(self) -> bool:
        return self.signals()

    def load(self, data: str) -> KnowledgeGraph:
        return load_graph(data)

    def note(self, text: str) -> None:
        note(text)

    @contextmanager
    def training(self, name: str, config: TrainConfig) -> Iterator[Listener]:
        with WatchedTraining(name, config, self.signals, series=True) as display:
            yield display


def reproduce(
    table: str, selection: Selection, out: Path, time_limit: float, table_only: bool
) -> loop.Outcome:
    with Signals(time_limit or math.inf) as signals:
        return loop.reproduce(TABLES[table], selection, out, _Listener(signals), table_only)


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
