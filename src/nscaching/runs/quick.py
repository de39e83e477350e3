"""A run folder that is only asked for answers: opened without the import of PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.config import TrainConfig
from nscaching.data.frames import Passed
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError
from nscaching.evaluation.answers import Answers, Question, ask
from nscaching.evaluation.calibration import Calibration
from nscaching.evaluation.numpy_scores import Rows, numpy_scores
from nscaching.evaluation.shortlist import Scores
from nscaching.files import map_arrays
from nscaching.runs.calibration import read_calibration
from nscaching.runs.folder import CALIBRATION, MODEL, Record, RunFolder


@dataclass(frozen=True, eq=False)
class QuickRun:
    """A run that fills gaps, as ``Run.predict`` does."""

    graph: KnowledgeGraph
    config: TrainConfig
    scores: Scores
    vectors: Rows  # [|E|, D] of the entities
    calibration: Calibration | None
    history: list[Record]
    best_epoch: int

    def predict(self, *parts: Passed, prior: float | None = None, **options: Any) -> Answers:  # noqa: ANN401
        """Answer a query of head, relation and tail; the options are those of ``ask``."""
        question = Question.read(self.graph, *parts)
        return ask(self.scores, question, likely=(self.calibration, prior), **options)


def open_quickly(path: str | Path, trust: bool = False) -> QuickRun | None:
    """Open a run folder, or return None where ``Run.load`` has to: it also says what is wrong."""
    folder = RunFolder(path)
    source, config = folder.read_config(trust)
    graph = folder.read_graph(source)
    history = folder.read_history()  # a damaged run is refused here too
    try:
        arrays, about = map_arrays(folder.path / MODEL)
    except UserError:
        return None
    scores, epoch = numpy_scores(config, graph, arrays), about.get("epoch", "")
    if scores is None or not epoch.isdecimal():
        return None
    file = folder.path / CALIBRATION
    calibration = read_calibration(file, len(graph.relations), int(epoch))
    if calibration is None and (len(graph.valid) or "valid" in graph.labelled):
        return None  # to fit one, triples are scored
    return QuickRun(graph, config, scores, arrays["entity"], calibration, history, int(epoch))
