"""The verb ``report``."""

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import say
from nscaching.cli.verbs._base import AskRun, Run


@dataclass(frozen=True, kw_only=True)
class Report(AskRun):
    """Write the report of a run, one HTML page: curves, results by relation, examples, cache.

    nscaching report runs/x --out report.html
    """

    out: str = ""
    """File to write; empty: report.html in the run folder, which is replaced."""
    overwrite: bool = False
    """Replace any other file if it exists."""

    def ask(self, run: Run) -> dict[str, Any]:
        from nscaching.cli.progress import when_slow

        with when_slow("ranking for the report") as bar:
            file = run.report(self.out, self.overwrite, bar)
        return {"run": str(run.path), "report": str(file)}

    def show(self, run: Run, result: dict[str, Any]) -> None:
        say(f"report: {result['report']}")
