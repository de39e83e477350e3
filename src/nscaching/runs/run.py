"""A trained model with its graph, configuration and history: ask it, export it, save it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag, unknown
from nscaching.evaluation.candidates import classify_entities, evaluate_relations
from nscaching.evaluation.classify import classify, link_entities
from nscaching.evaluation.predict import By, Known, neighbours, predict
from nscaching.evaluation.ranking import Ranks, evaluate
from nscaching.files import save_tensors
from nscaching.kernels.dispatch import choose_device
from nscaching.models import Model
from nscaching.probes import ProbeConfig
from nscaching.probes.files import Snapshots, append_scores, read_scores, save_snapshot
from nscaching.runs.card import write_card
from nscaching.runs.export import export
from nscaching.runs.folder import Record, RunFolder, default_out
from nscaching.runs.inspect import inspect
from nscaching.runs.layout import CACHE, CARD, PLOT, REPORT
from nscaching.runs.plots import plot_run
from nscaching.runs.report import report
from nscaching.runs.settings import CONFIG, read_probes, read_record
from nscaching.runs.start import built_model

RANKINGS = {"links": evaluate, "relations": evaluate_relations}
OF_A_RELATION = {"entities": classify_entities, "linking": link_entities}


@dataclass
class Run:
    """The result of ``train`` and ``resume``; ``Run.load`` reads one from a run folder."""

    graph: KnowledgeGraph
    config: TrainConfig
    model: Model
    history: list[Record] = field(default_factory=list)
    best_epoch: int = 0
    sampler_state: dict[str, Tensor] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    """Facts that the configuration leaves open: device, threads, penalty; versions, once saved."""
    path: Path | None = None
    test_ranks: dict[Side, Ranks] | None = field(default=None, repr=False, compare=False)
    """Ranks of the test triples, if training has just ranked them; the report uses them."""
    probes: ProbeConfig = field(default_factory=ProbeConfig)
    scores: list[Record] = field(default_factory=list)
    """Score differences of watched triples: the lines of scores.jsonl."""
    snapshots: Mapping[int, dict[str, Tensor]] = field(default_factory=dict)
    """The cache after some epochs, by epoch."""

    export = export
    inspect = inspect
    report = report

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", trust: bool = False) -> Run:
        """Load a run folder; the folder holds the data too.

        A folder whose configuration names code from outside the package is refused, unless
        ``trust`` allows that code to run.
        """
        folder = RunFolder(path)
        source, config = folder.read_config(trust)
        graph, (parameters, epoch) = folder.read_graph(source), folder.read_model()
        model = built_model(str(folder.path), config, graph, parameters)
        model.to(choose_device(device))
        return cls(
            graph,
            config,
            model,
            best_epoch=epoch,
            history=folder.read_history(),
            sampler_state=folder.read_sampler(),
            record=read_record(folder.path / CONFIG),
            path=folder.path,
            probes=read_probes(folder.path / CONFIG),
            scores=read_scores(folder.path),
            snapshots=Snapshots(folder.path),
        )

    def result(self, split: str) -> Record | None:
        """Return the ranking of a split that training recorded for the saved parameters."""
        rankings = [r for r in self.history if r.get("split") == split and not r.get("traced")]
        found = [r for r in rankings if r["epoch"] == self.best_epoch]
        return found[-1] if found else None

    @property
    def train_seconds(self) -> float:
        """Seconds spent in training, without evaluation."""
        return float(sum(r["seconds"] for r in self.history if "split" not in r))

    @property
    def name(self) -> str:
        """The folder's name, or else data, model and sampler."""
        if self.path is not None:
            return self.path.resolve().name
        return f"{self.graph.name}-{self.config.model}-{self.config.sampler}".lower()

    def evaluate(self, split: str = "test", task: str = "links", **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Rank the entities of a split, or with ``task="relations"`` its relations.

        The options are those of ``ranking.evaluate`` and ``relations.evaluate_relations``.
        """
        if task not in RANKINGS:
            raise unknown("task", task, RANKINGS)
        return RANKINGS[task](self.model, self.graph, split, **options)

    def classify(
        self, split: str = "test", task: str = "triples", relation: str | None = None
    ) -> dict[str, Any]:
        """Tell the true from the false triples of a split and report the accuracy.

        With ``task="entities"``: find the classes of the heads of a relation such as IsA. With
        ``task="linking"``: tell which pairs of a relation such as EqualTo are the same.
        """
        if task == "triples":
            if relation is not None:
                raise UserError(
                    f"{flag('relation')} {relation!r} needs {flag('task')} entities or linking"
                )
            return classify(self.model, self.graph, split)
        if task not in OF_A_RELATION:
            raise unknown("task", task, ("triples", *OF_A_RELATION))
        if relation is None:
            count = len(self.graph.relations)
            names = [self.graph.relation_label(i) for i in range(min(12, count))]
            some = ", ".join(names + ["…"] * (count > 12))
            raise UserError(f"{flag('task')} {task} needs a {flag('relation')}, one of {some}")
        number = self.graph.relation_id(relation)
        return OF_A_RELATION[task](self.model, self.graph, number, split)

    def neighbours(self, name: str, top: int = 10, by: By = "cosine") -> dict[str, Any]:
        """Return the entities whose vectors are nearest to the vector of a name or label."""
        return neighbours(self.model, self.graph, name, top, by)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        known: Known = "hide",
    ) -> dict[str, Any]:
        """Answer a triple with one gap by name, or judge a whole triple."""
        return predict(self.model, self.graph, head, relation, tail, top, known)

    def save(self, path: str | Path = "", overwrite: bool = False) -> Path:
        """Write the run folder to a path or else to a new folder under runs/; return its path."""
        folder = RunFolder(path or default_out(self.graph, self.config))
        try:
            folder.create(self.graph, self.config, overwrite, self.record, self.probes)
            folder.append(*self.history)
            append_scores(folder.path, self.scores)
            for epoch, cache in self.snapshots.items():
                save_snapshot(folder.path, epoch, cache)
            return self.finish(folder)
        finally:
            folder.release()

    def finish(self, folder: RunFolder) -> Path:
        """Write the files of a finished run: parameters, cache, plot, model card and report.

        Checkpoints are removed last: until then, an interrupted run can be resumed.
        """
        self.path = folder.target
        folder.save_model(self.model.state_dict(), self.best_epoch)
        if self.sampler_state:
            save_tensors(folder.path / CACHE, self.sampler_state)
        plot_run(self, folder.path / PLOT)
        write_card(self, folder.path / CARD)
        folder.finish()
        self.path = folder.path
        try:
            self.report(overwrite=True)
        except Exception as error:  # the run is saved: a failed report must not fail the run
            warnings.warn(f"{folder.path / REPORT} was not written: {error}", stacklevel=2)
        folder.close()
        return folder.path
