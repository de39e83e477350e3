"""What a run recorded: settings, metrics, scores of watched triples; its model if asked for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.config import TrainConfig
from nscaching.data import datasets
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, as_flag
from nscaching.probes.files import SCORES
from nscaching.runs.folder import Record, RunFolder
from nscaching.runs.run import Run

__all__ = [
    "Log", "alike", "by_sampler", "compare", "grouped", "in_order", "labels", "read", "shown",
    "traced_split",
]  # fmt: skip

SAMPLERS = {"bernoulli": "Bernoulli", "igan": "IGAN", "kbgan": "KBGAN", "nscaching": "NSCaching"}
MODELS_IN_PAPER = ("TransE", "TransH", "TransD", "DistMult", "ComplEx")
# Settings that tell no line from another.
SILENT = {"device", "threads", "kernels", "pretrain", "generator_pretrain"}


@dataclass(frozen=True)
class Log:
    """The records of one run."""

    name: str
    path: Path | None
    graph: KnowledgeGraph
    config: TrainConfig
    history: list[Record]
    mark: str = ""
    """What tells its data from others of the same name."""
    run: Run | None = None
    """Where it was given instead of a folder."""

    @classmethod
    def read(cls, run: Run | str | Path, trust: bool = False) -> Log:
        """Read the log of a run folder, which need not be finished, or take that of a run."""
        if isinstance(run, Run):
            return cls(run.name, run.path, run.graph, run.config, run.history, run=run)
        folder = RunFolder(run)
        source, config = folder.read_config(trust)
        graph, name = folder.read_graph(source), folder.path.resolve().name
        return cls(name, folder.path, graph, config, folder.read_history())

    @property
    def where(self) -> str:
        """What errors and notes call the run."""
        return str(self.path or self.name)

    @property
    def data(self) -> str:
        """The data set as it is usually written."""
        known = datasets.find(self.graph.name)
        return (known.title if known else self.graph.name) + self.mark

    @property
    def model(self) -> str:
        """The scoring function."""
        return self.config.model.rpartition(":")[2]

    @property
    def sampler(self) -> str:
        """The sampler."""
        return SAMPLERS.get(self.config.sampler, self.config.sampler.rpartition(":")[2])

    @property
    def start(self) -> str:
        """Where training began."""
        return "pretrain" if self.config.pretrain else "scratch"

    def about(self) -> dict[str, Any]:
        """Return the columns that every CSV file begins with."""
        names = {"run": self.name, "data": self.data, "model": self.model}
        return names | {"sampler": self.config.sampler, "start": self.start}

    def epochs(self, figure: str) -> list[Record]:
        """Return the records of the epochs that have a figure."""
        found = (record for record in self.history if "split" not in record)
        return [record for record in found if isinstance(record.get(figure), int | float)]

    def rankings(self, split: str) -> list[Record]:
        """Return the rankings of "valid", or those of "test" that were made while training."""
        found = (record for record in self.history if record.get("split") == split)
        return [record for record in found if split == "valid" or record.get("traced") is True]

    def load(self) -> Run:
        """Return the run with its model and cache."""
        return self.run or Run.load(self.where, trust=True)  # ``read`` has asked for it

    def scores(self) -> list[Record]:
        """Return the scores of watched triples; there are none where none were watched."""
        path = None if self.path is None else self.path / SCORES
        if path is None or not path.is_file():
            return []
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{path}: cannot read it: {reason}") from error
        found = [_score(f"{path}:{i}", line) for i, line in enumerate(lines, 1) if line]
        if not found:
            raise UserError(f"{path}: no scores are recorded yet")
        return found


def _score(where: str, line: str) -> Record:
    try:
        record = json.loads(line)
        names = all(isinstance(record[name], str) for name in ("head", "relation", "tail"))
        lists = [record["differences"], record["top"]]
        figures = [float(value) for values in lists for value in values]
        margin = record["margin"]
        right = names and record["side"] in ("head", "tail") and len(lists[0]) > 1 and figures
        if not (right and isinstance(record["epoch"], int)):
            raise ValueError(margin)
        record["margin"] = None if margin is None else float(margin)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(f"{where}: not a line of scores") from None
    return dict(record)


def read(
    runs: Sequence[Run | str | Path],
    notes: list[str],
    progress: Callable[[int], None],
    trust: bool = False,
) -> list[Log]:
    """Read the logs of runs, each once; data of one name that are not the same are told apart."""
    logs: dict[object, Log] = {}
    for number, run in enumerate(runs):
        progress(number)
        log = Log.read(run, trust)
        this: object = id(run) if log.path is None else log.path.resolve()
        if this in logs:
            notes.append(f"{log.where} is given twice, and drawn once")
        logs.setdefault(this, log)
    prints = {
        data: {log.graph.fingerprint for log in group} if len(group) > 1 else set()
        for data, group in grouped(list(logs.values()), lambda log: log.data).items()
    }
    return [
        dataclasses.replace(log, mark=f" [{log.graph.fingerprint[:6]}]")
        if len(prints[log.data]) > 1
        else log
        for log in logs.values()
    ]


def shown(logs: Sequence[Log], lacks: Callable[[Log], str], notes: list[str]) -> list[Log]:
    """Return the runs that lack nothing; the others are noted, and if there is none, it is said."""
    missing = [lacks(log) for log in logs]
    if all(missing):
        raise UserError(f"{logs[0].where}: {missing[0]}")
    named = zip(logs, missing, strict=True)
    notes += [f"{log.where} is not shown: {what}" for log, what in named if what]
    return [log for log, what in zip(logs, missing, strict=True) if not what]


def traced_split(logs: Sequence[Log], notes: list[str]) -> str:
    """Return "test" if all runs of a page ranked the test triples while training, else "valid"."""
    untraced = [log for log in logs if not log.rankings("test")]
    for log in untraced:
        if not log.rankings("valid"):
            cure = "--validate-every N records them, with --probe-test of test triples too"
            if not len(log.graph.valid):
                cure = "--probe-test records those of test triples, there being none of validation"
            raise UserError(f"{log.where}: no ranking while training; nscaching train {cure}")
    if untraced and len(untraced) < len(logs):
        notes.append(
            f"{logs[0].model}: validation triples are shown, since {untraced[0].where} ranked no "
            "test triples while training (nscaching train --probe-test)"
        )
    return "valid" if untraced else "test"


def in_order(logs: Sequence[Log]) -> list[Log]:
    """Return logs by model, data, sampler and start, so that a line looks the same everywhere."""

    def place(name: str, known: Sequence[str]) -> tuple[int, str]:
        return known.index(name) if name in known else len(known), name

    titles, samplers = [known.title for known in datasets.KNOWN.values()], list(SAMPLERS)
    return sorted(
        logs,
        key=lambda log: (
            place(log.model, MODELS_IN_PAPER),
            place(log.data, titles),
            place(log.config.sampler, samplers),
            log.start,
        ),
    )


def grouped(logs: Sequence[Log], key: Callable[[Log], Any]) -> dict[Any, list[Log]]:
    """Return logs by key, in the order of their first appearance."""
    groups: dict[Any, list[Log]] = {}
    for log in logs:
        groups.setdefault(key(log), []).append(log)
    return groups


def alike(log: Log, but: set[str]) -> tuple[str, ...]:
    """Return what is equal of runs that differ in some settings, and in the seed, alone."""
    settings = dataclasses.asdict(log.config)
    return tuple(str(settings[key]) for key in settings if key not in SILENT | {"seed"} | but)


def compare(logs: Sequence[Log], by: set[str], notes: list[str]) -> None:
    """Note what runs differ in besides the settings that a figure compares them by."""
    settings = [dataclasses.asdict(log.config) for log in logs]
    told = by | SILENT | {"seed"}
    differ = [
        key
        for key in (settings[0] if settings else ())
        if key not in told and len({str(values[key]) for values in settings}) > 1
    ]
    if differ:
        names = ", ".join(as_flag(key) for key in differ)
        notes.append(f"these runs of {logs[0].model} on {logs[0].data} differ in {names} too")


def by_sampler(logs: Sequence[Log]) -> list[str]:
    """Name runs by their samplers, and by their starts if one of them was pretrained."""
    starts = any(log.config.pretrain for log in logs)
    return labels(logs, [f"{log.sampler}, {log.start}" if starts else log.sampler for log in logs])


def labels(logs: Sequence[Log], names: Sequence[str]) -> list[str]:
    """Return names of runs, with what tells them apart where runs of one panel share a name.

    Runs of several data sets or models, which panels tell apart, may share names.
    """
    result = list(names)
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, log in enumerate(logs):
        alike.setdefault((log.data, log.model, names[i]), []).append(i)
    for group in alike.values():
        settings = [dataclasses.asdict(logs[i].config) for i in group]
        differ = [
            key
            for key in settings[0]
            if key not in SILENT and len({str(values[key]) for values in settings}) > 1
        ][:2]
        told = [[f"{key.replace('_', ' ')} {values[key]}" for key in differ] for values in settings]
        if len({tuple(words) for words in told}) < len(group):
            told = [[logs[i].name] for i in group]
        if len(group) > 1:
            for i, words in zip(group, told, strict=True):
                result[i] = ", ".join([names[i], *words])
    return result
