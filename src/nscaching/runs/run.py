"""A trained model with its graph, configuration and history: ask it, export it, save it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.errors import UserError, flag, unknown
from nscaching.evaluation.calibration import Calibration
from nscaching.evaluation.candidates import classify_entities, evaluate_relations
from nscaching.evaluation.classify import classify, link_entities
from nscaching.evaluation.explain import explain
from nscaching.evaluation.predict import neighbours, predict, score
from nscaching.evaluation.ranks import Ranks
from nscaching.evaluation.reliability import evaluate_calibration
from nscaching.evaluation.sampled import evaluate
from nscaching.evaluation.typed import evaluate_typed
from nscaching.files import save_tensors
from nscaching.kernels import choose_device
from nscaching.models import Model
from nscaching.probes import ProbeConfig
from nscaching.probes.files import Snapshots, append_scores, read_scores, save_snapshot
from nscaching.runs.calibration import (
    calibrated,
    keep_calibration,
    needed,
    probabilities,
    read_calibration,
    save_calibration,
)
from nscaching.runs.card import write_card
from nscaching.runs.export import Vectors, export, vectors_of
from nscaching.runs.extend import extend
from nscaching.runs.folder import (
    CACHE,
    CALIBRATION,
    CARD,
    PLOT,
    REPORT,
    Record,
    RunFolder,
    default_out,
    result_of,
)
from nscaching.runs.inspect import inspect
from nscaching.runs.parameters import built_model
from nscaching.runs.plots import plot_run
from nscaching.runs.report.page import report
from nscaching.runs.settings import CONFIG, read_probes, read_record
from nscaching.samplers.shared_rows import SharedRows, rows_of_budget

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

    calibration: Calibration | None = field(default=None, repr=False, compare=False)
    """What turns scores into probabilities, once it is fitted or read; see ``calibrated``."""

    @cached_property
    def shared_rows(self) -> Mapping[Side, SharedRows]:
        """Which rows of the cache queries share; an empty mapping: each has its own."""
        settings, index = self.config.cache, self.graph.train_index
        if settings.cache_memory is None:
            return {}
        sizes = settings.n1, len(self.graph.entities)
        return rows_of_budget(settings.cache_memory, index, *sizes, torch.device("cpu"))

    calibrated = calibrated
    explain = explain
    export = export
    extend = extend
    inspect = inspect
    neighbours = neighbours
    predict = predict
    probabilities = probabilities
    report = report
    score = score
    write_calibration = save_calibration

    def __repr__(self) -> str:
        trained = sum("split" not in record for record in self.history)
        epochs = f"epoch {self.best_epoch} of {trained}" if trained else "not trained here"
        what = f"{self.config.model} with {self.config.sampler} on {self.graph.name}"
        result = self.result("test") or self.result("valid")
        if result is not None:
            epochs += f"; {result['split']} MRR {result['mrr']:.3f}"
            epochs += f", Hit@10 {result['hits@10']:.3f}"
        where = "" if self.path is None else f"; {self.path}"
        return f"Run({what}, d = {self.config.dim}; {epochs}{where})"

    @property
    def embeddings(self) -> Vectors:
        """Names and float32 vectors of entities and relations; row i belongs to name i."""
        return vectors_of(self.model, self.graph)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", trust: bool = False) -> Run:
        """Load a run folder; the folder holds the data too.

        A folder whose configuration names code from outside the package is refused, unless
        ``trust`` allows that code to run.
        """
        folder = RunFolder(path)
        source, config = folder.read_config(trust)
        graph, (parameters, epoch) = folder.read_graph(source), folder.read_model()
        model = built_model(str(folder.path), config, graph, parameters, choose_device(device))
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
            calibration=read_calibration(folder.path / CALIBRATION, len(graph.relations), epoch),
        )

    def result(self, split: str) -> Record | None:
        """Return the ranking of a split that training recorded for the saved parameters."""
        return result_of(self.history, self.best_epoch, split)

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

    def evaluate(
        self,
        split: str = "test",
        task: str = "links",
        typed: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Rank the entities of a split, or with ``task="relations"`` its relations.

        The options are those of ``sampled.evaluate``, such as ``candidates=10000, seed=1`` for a
        ranking among so many random entities, and of ``candidates.evaluate_relations``. With
        ``task="calibration"``: compare probabilities with the truth; the option is ``prior``.
        With ``typed`` the report has the ranking in the order of ``predict`` too, by type.
        """
        if task == "calibration":
            return evaluate_calibration(self.model, self.graph, needed(self), split, **options)
        if task not in RANKINGS:
            raise unknown("task", task, (*RANKINGS, "calibration"))
        if typed and task != "links":
            raise UserError(f"{flag('typed')} goes with {flag('task')} links")
        if options.get("candidates") and (typed or task != "links"):
            reason = "goes with the ranking of all entities" if typed else "samples entities"
            what = flag("typed") if typed else flag("candidates")
            raise UserError(f"{what} {reason}: leave out {flag('candidates')}")
        report = RANKINGS[task](self.model, self.graph, split, **options)
        if typed:
            report["typed"] = evaluate_typed(self.model, self.graph, split, **options)
        return report

    def classify(
        self,
        split: str = "test",
        task: str = "triples",
        relation: str | None = None,
        prior: float | None = None,
    ) -> dict[str, Any]:
        """Tell the true from the false triples of a split and report the accuracy.

        A threshold has its probability beside it; ``prior`` is that of ``probabilities``.
        With ``task="entities"``: find the classes of the heads of a relation such as IsA. With
        ``task="linking"``: tell which pairs of a relation such as EqualTo are the same.
        """
        if task == "triples":
            if relation is not None:
                needed = f"{flag('task')} entities or linking"
                raise UserError(f"{flag('relation')} {relation!r} needs {needed}")
            return classify(self.model, self.graph, split, self.calibrated(), prior)
        if task not in OF_A_RELATION:
            raise unknown("task", task, ("triples", *OF_A_RELATION))
        if relation is None:
            count = len(self.graph.relations)
            some = [self.graph.relation_label(i) for i in range(min(12, count))]
            names = ", ".join(some + ["…"] * (count > 12))
            raise UserError(f"{flag('task')} {task} needs a {flag('relation')}, one of {names}")
        number = self.graph.relation_id(relation)
        return OF_A_RELATION[task](self.model, self.graph, number, split)

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

    def finish(self, folder: RunFolder, has_model: bool = False) -> Path:
        """Write the files of a finished run: parameters, cache, plot, model card and report.

        Checkpoints are removed last: until then, an interrupted run can be resumed. ``has_model``:
        the folder has the parameters already.
        """
        self.path = folder.target
        if not has_model:
            folder.save_model(self.model.state_dict(), self.best_epoch)
        if self.sampler_state:
            save_tensors(folder.path / CACHE, self.sampler_state)
        keep_calibration(self, folder.path)
        plot_run(self, folder.path / PLOT)
        write_card(self, folder.path / CARD)
        folder.finish()
        self.path, self.snapshots = folder.path, Snapshots(folder.path)
        try:
            self.report(overwrite=True)
        except Exception as error:  # the run is saved: a failed report must not fail the run
            warnings.warn(f"{folder.path / REPORT} was not written: {error}", stacklevel=2)
        folder.close()
        return folder.path
