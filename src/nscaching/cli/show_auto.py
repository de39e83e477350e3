"""What ``nscaching auto`` shows: a bar of its time, a line per candidate, the leaderboard."""

from typing import Any, Self

from nscaching.automatic import Auto
from nscaching.automatic.candidates import Candidate
from nscaching.automatic.journal import LEADERBOARD, PAGE, TABLE
from nscaching.automatic.slices import Watch
from nscaching.cli.progress import Signals
from nscaching.cli.tables import HEADINGS, cells, print_json, print_table, say
from nscaching.runs.escaping import duration
from nscaching.training.display import Bar


class AutoDisplay(Bar, Watch):
    """The bar of a search: its time, the candidate and its best MRR; signals stop it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.signals = Signals()

    def __enter__(self) -> Self:
        self.signals.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401  (as of a context manager)
        super().__exit__(*error)
        self.signals.__exit__(*error)

    def announce(self, text: str) -> None:
        self.say(text, "dim")

    def progress(self, spent: float, seconds: float, doing: str) -> None:
        self.show(min(spent, seconds), seconds, doing)

    def end(self, candidate: Candidate, best: bool) -> None:
        one = candidate
        if one.state == "failed":
            self.say(f"{one.name}: failed: {one.reason}")
            return
        mrr = (
            f"valid MRR {one.mrr:.4f} at epoch {one.best['epoch']}" if one.best else "no validation"
        )
        state = {"finished": "  finished", "stopped": ""}[one.state]
        self.say(f"{one.name}: {mrr}  {one.seconds:.1f} s{state}{'  best' if best else ''}")

    def stop(self) -> bool:
        return self.signals()


def show_auto(result: Auto, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
        return
    rows = [
        [
            row["candidate"],
            *(cells(row, *("mrr", "hits@1", "hits@10")) if row["mrr"] is not None else ["–"] * 3),
            "" if row["epochs"] is None else f"{row['epochs']:,}",
            "" if row["seconds"] is None else f"{row['seconds']:.1f}",
            row["state"] or "trivial rule",
        ]
        for row in result.leaderboard
    ]
    headings = ["candidate", "valid MRR", "Hit@1", "Hit@10", "epochs", "seconds", "state"]
    print_table(headings, rows, words=(0, 6))
    if run := result.run:
        found = {split: run.result(split) for split in ("valid", "test")}
        rows = [[split, *cells(figures)] for split, figures in found.items() if figures]
        say("")
        print_table(["the best", *HEADINGS.values()], rows)
        say("", f"run folder: {run.path}")
    limit = duration(60 * result.minutes)
    say(f"in {result.path}: {PAGE}, {LEADERBOARD}, {TABLE}; {result.spent:.0f} s of {limit}")
    if result.verdict:
        say(result.verdict)
    advice = result.advice() or ["all is tried that auto knows; to search finer:"]
    say("", "with more time:", *(f"  {line}" for line in advice), f"  {result.command()}")
