"""A trained model with its graph, configuration and history: ask it, export it, save it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from nscaching.evaluation import tasks
from nscaching.runs.card import write_card
from nscaching.config import TrainConfig
from nscaching.errors import UserError
from nscaching.evaluation.ranking import Ranks
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.runs.inspect import inspect
from nscaching.models import Model, build
from nscaching.runs.plots import plot_run
from nscaching.evaluation.predict import Known, predict
from nscaching.probes import ProbeConfig
from nscaching.probes.files import Snapshots, append_scores, read_scores, save_snapshot
from nscaching.runs.settings import CONFIG, read_probes, read_record
from nscaching.runs.layout import CARD, PLOT, REPORT
from nscaching.runs.folder import RunFolder, default_out
from nscaching.evaluation.neighbours import By
from nscaching.kernels.dispatch import choose_device
from nscaching.runs.folder import Record
from nscaching.runs.start import check_sizes

__all__ = ["Run"]


@dataclass
class Run:
    """What ``train`` and ``resume`` return and ``Run.load`` reads back."""

    graph: KnowledgeGraph
    config: TrainConfig
    model: Model
    history: list[Record] = field(default_factory=list)
    best_epoch: int = 0
    sampler_state: dict[str, Tensor] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    """What the configuration leaves open: device, threads, penalty; versions, once it is saved."""
    path: Path | None = None
    test_ranks: dict[Side, Ranks] | None = field(default=None, repr=False, compare=False)
    """Of the test triples, where training has just ranked them: what a report breaks down."""
    probes: ProbeConfig = field(default_factory=ProbeConfig)
    scores: list[Record] = field(default_factory=list)
    """What watched triples showed: lines of scores.jsonl."""
    snapshots: Mapping[int, dict[str, Tensor]] = field(default_factory=dict)
    """The cache after some epochs."""

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", trust: bool = False) -> Run:
        """Load a run folder; it holds everything, so the data need not be there any more.

        A folder whose configuration names code from outside the package is refused, unless
        ``trust`` allows to run that code.
        """
        folder = RunFolder(path)
        source, config = folder.read_config(trust)
        graph, (parameters, epoch) = folder.read_graph(source), folder.read_model()
        try:
            check_sizes(config, graph, parameters)
            model = build(config.model, graph, config.dim, config.norm)
            model.load_state_dict(parameters)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{folder.path}: model and configuration differ: {reason}") from None
        model.to(choose_device(device))
        state, record = folder.read_sampler(), read_record(folder.path / CONFIG)
        run = cls(graph, config, model, folder.read_history(), epoch, state, record, folder.path)
        run.probes = read_probes(folder.path / CONFIG)
        run.scores, run.snapshots = read_scores(folder.path), Snapshots(folder.path)
        return run

    def result(self, split: str) -> Record | None:
        """Return the ranking of a split that training recorded for the parameters it kept."""
        found = [
            r
            for r in self.history
            if r.get("split") == split and r["epoch"] == self.best_epoch and not r.get("traced")
        ]
        return found[-1] if found else None

    @property
    def train_seconds(self) -> float:
        """Seconds spent in training, evaluation apart."""
        return float(sum(r["seconds"] for r in self.history if "split" not in r))

    @property
    def name(self) -> str:
        """The folder's name, or what was trained."""
        if self.path is not None:
            return self.path.resolve().name
        return f"{self.graph.name}-{self.config.model}-{self.config.sampler}".lower()

    def evaluate(self, split: str = "test", task: str = "links", **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Rank the entities of a split, or with ``task="relations"`` its relations.

        The options are those of ``evaluation.evaluate`` and ``tasks.relations``.
        """
        return tasks.evaluate(self.model, self.graph, split, task, **options)

    def classify(
        self, split: str = "test", task: str = "triples", relation: str | None = None
    ) -> dict[str, Any]:
        """Tell the true from the false triples of a split and report the accuracy.

        With ``task="entities"`` tell what the heads of a relation such as IsA are, with
        ``task="linking"`` which pairs of a relation such as EqualTo are the same.
        """
        return tasks.classify(self.model, self.graph, split, task, relation)

    def neighbours(self, name: str, top: int = 10, by: By = "cosine") -> dict[str, Any]:
        """Return the entities whose vectors are nearest to that of a name or label."""
        return tasks.neighbours(self.model, self.graph, name, top, by)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        known: Known = "hide",
    ) -> dict[str, Any]:
        """Answer a triple with one gap by name, or judge a whole one."""
        return predict(self.model, self.graph, head, relation, tail, top, known)

    def inspect(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        epoch: int | None = None,
        sample: int | None = None,
        top: int | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Show the cache of (head, relation, ?) or (?, relation, tail) by name.

        At the end, at an epoch that was kept, or some entities of it at all of them.
        """
        return inspect(self, head, relation, tail, epoch, sample, top, seed)

    def export(
        self,
        path: str | Path,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Path, ...]:
        """Write the vectors with their names as .safetensors, .npz, .tsv or .parquet."""
        from nscaching.runs.export import export

        return export(self.model, self.graph, path, overwrite, progress)

    def report(
        self,
        path: str | Path = "",
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Write the report, one HTML page, into the run folder unless told where."""
        from nscaching.runs.report import write_report

        if not path and self.path is None:
            raise UserError("the run is not saved: say where to write its report")
        return write_report(self, path or (self.path or Path()) / REPORT, overwrite, progress)

    def save(self, path: str | Path = "", overwrite: bool = False) -> Path:
        """Write the run folder, a new one under runs/ unless told where; return where it is."""
        folder = RunFolder(path or default_out(self.graph, self.config))
        try:
            folder.create(self.graph, self.config, overwrite, self.record, self.probes)
            for record in self.history:
                folder.append(record)
            append_scores(folder.path, self.scores)
            for epoch, cache in self.snapshots.items():
                save_snapshot(folder.path, epoch, cache)
            return self.finish(folder)
        finally:
            folder.release()

    def finish(self, folder: RunFolder) -> Path:
        """Write what only a finished run has: parameters, cache, plot, model card and report.

        Where it breaks off, the run can still be resumed: checkpoints go last.
        """
        self.path = folder.target
        folder.save_model(self.model.state_dict(), self.best_epoch)
        folder.save_sampler(self.sampler_state)
        plot_run(self, folder.path / PLOT)
        write_card(self, folder.path / CARD)
        folder.finish()
        self.path = folder.path
        try:
            self.report(overwrite=True)
        except Exception as error:  # the run is saved: no report is worth losing that
            warnings.warn(f"{folder.path / REPORT} was not written: {error}", stacklevel=2)
        folder.close()
        return folder.path
