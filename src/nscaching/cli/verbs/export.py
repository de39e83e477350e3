"""The verb ``export``."""

from dataclasses import dataclass

from nscaching.cli.tables import print_json, say
from nscaching.cli.verbs._base import Json, RunPath, Trust


@dataclass(frozen=True)
class Export:
    """Write the vectors with their names: .safetensors, .npz, .tsv (word2vec) or .parquet.

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
        entities, relations = len(run.graph.entities), len(run.graph.relations)
        if self.json:
            sizes = {"entities": entities, "relations": relations}
            print_json({"run": str(run.path), "files": files, **sizes})
        else:
            say(f"{entities:,} entities and {relations:,} relations: {', '.join(files)}")
