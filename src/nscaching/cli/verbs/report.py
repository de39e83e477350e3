"""The verb ``report``."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.cli.tables import print_json, say
from nscaching.cli.verbs._base import Device, Json, RunPath, Trust

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Write the report of a run, one HTML page: curves, results by relation, examples, cache.

    nscaching report runs/x --out report.html
    """

    path: RunPath
    out: str = ""
    """File to write; empty: report.html in the run folder, made anew if it is there."""
    overwrite: bool = False
    """Replace any other file if it exists."""
    device: Device = "auto"
    """Where to compute."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        """Write the report, showing progress if it takes long, and print its path."""
        from nscaching.cli.progress import when_slow
        from nscaching.runs.run import Run

        run = Run.load(self.path, self.device, self.trust)
        with when_slow("ranking for the report") as progress:
            file = run.report(self.out, self.overwrite, progress)
        if self.json:
            print_json({"run": str(run.path), "report": str(file)})
        else:
            say(f"report: {file}")
