"""The verbs ``export`` and ``report``, which write what a run holds."""

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import print_json, say
from nscaching.cli.verbs._base import AskRun, Json, Run, RunPath, Trust
from nscaching.errors import counted


@dataclass(frozen=True)
class Export:
    """Write the vectors with their names: .safetensors, .npz, .tsv (word2vec), .csv or .parquet.

    nscaching export runs/x --to vectors.npz
    """

    path: RunPath
    to: str
    """File to write; its suffix says the format."""
    overwrite: bool = False
    """Replace the file if it exists."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        from nscaching.cli.progress import when_slow
        from nscaching.runs.run import Run

        run = Run.load(self.path, "cpu", self.trust)
        with when_slow(f"writing {self.to}") as bar:
            files = [str(file) for file in run.export(self.to, self.overwrite, bar)]
        entities, relations = run.model.entities, run.model.relations  # with their inverses
        if self.json:
            sizes = {"entities": entities, "relations": relations}
            print_json({"run": str(run.path), "files": files, **sizes})
        else:
            names = counted(entities, "entity", "entities"), counted(relations, "relation")
            say(f"{' and '.join(names)}: {', '.join(files)}")


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
