"""The records of runs for figures: settings, metrics, scores of watched triples."""

from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

from nscaching.data import datasets
from nscaching.errors import UserError, as_flag
from nscaching.paper.figures._drawing import Line, evenly
from nscaching.probes.files import read_scores
from nscaching.runs.folder import Record, RunFolder
from nscaching.runs.run import Run

SAMPLERS = {"bernoulli": "Bernoulli", "igan": "IGAN", "kbgan": "KBGAN", "nscaching": "NSCaching"}
# Settings that do not tell one line from another.
SILENT = {"device", "threads", "kernels", "pretrain", "generator_pretrain"}


class Log:
    """The records of one run; a key of dictionaries by identity."""

    def __init__(self, run: Run | str | Path, trust: bool = False) -> None:
        """Take the records of a run, or read those of a run folder, which need not be finished."""
        self.run = run if isinstance(run, Run) else None
        if isinstance(run, Run):
            self.path, self.name, self.history = run.path, run.name, run.history
            self.config, self.graph = run.config, run.graph
        else:
            folder = RunFolder(run)
            self.path, self.name = folder.path, folder.path.resolve().name
            source, self.config = folder.read_config(trust)
            self.graph, self.history = folder.read_graph(source), folder.read_history()
        self.where = str(self.path or self.name)  # the run's name in errors and notes
        known, sampler = datasets.find(self.graph.name), self.config.sampler
        self.data = known.title if known else self.graph.name  # as it is usually written
        self.model = self.config.model.rpartition(":")[2]
        self.sampler = SAMPLERS.get(sampler, sampler.rpartition(":")[2])
        self.start = "pretrain" if self.config.pretrain else "scratch"
        self.has_cache = sampler == "nscaching"
        self.settings = {k: str(v) for k, v in self.config.flat().items() if k not in SILENT}
        """The settings that may tell lines apart, by name."""

    @property
    def title(self) -> str:
        return f"{self.model} with {self.sampler} on {self.data}"

    @property
    def about(self) -> dict[str, Any]:
        names = {"run": self.name, "data": self.data, "model": self.model}
        return names | {"sampler": self.config.sampler, "start": self.start}

    def epochs(self, measure: str) -> list[Record]:
        found = (record for record in self.history if "split" not in record)
        return [record for record in found if isinstance(record.get(measure), int | float)]

    def rankings(self, split: str) -> list[Record]:
        """Return the rankings of "valid", or those of "test" that were made while training."""
        found = (record for record in self.history if record.get("split") == split)
        return [record for record in found if split == "valid" or record.get("traced") is True]

    def line(
        self, label: str, records: list[Record], columns: dict[str, str], **about: object
    ) -> Line:
        """Return a line of records: column → name of the figure; ``about`` is in each row.

        The last column is drawn against the column before.
        """
        start = {**self.about, **about}
        rows = [
            {**start, **{column: record[name] for column, name in columns.items()}}
            for record in evenly(records)
        ]
        return Line(label, rows, *list(columns)[-2:])

    def scores(self) -> list[Record]:
        return [] if self.path is None else read_scores(self.path)


def read(
    runs: Sequence[Run | str | Path], notes: list[str], progress: Callable[[int], None], trust: bool
) -> list[Log]:
    """Read the logs of runs, each once; data of one name that are not the same are told apart."""
    logs: dict[object, Log] = {}
    for number, run in enumerate(runs):
        progress(number)
        log = Log(run, trust)
        this: object = id(run) if log.path is None else log.path.resolve()
        if this in logs:
            notes.append(f"{log.where} is given twice, and drawn once")
        logs.setdefault(this, log)
    for group in grouped(list(logs.values()), lambda log: log.data).values():
        if len(group) > 1 and len({log.graph.fingerprint for log in group}) > 1:
            for log in group:
                log.data += f" [{log.graph.fingerprint[:6]}]"
    return list(logs.values())


def shown(logs: Sequence[Log], lacks: Callable[[Log], str], notes: list[str]) -> list[Log]:
    """Return the complete runs and note the others; if no run is complete, raise an error."""
    missing = [(log, lacks(log)) for log in logs]
    if all(what for _, what in missing):
        raise UserError(f"{logs[0].where}: {missing[0][1]}")
    notes += [f"{log.where} is not shown: {what}" for log, what in missing if what]
    return [log for log, what in missing if not what]


def shown_split(logs: Sequence[Log], notes: list[str]) -> tuple[str, str]:
    """Return the split that a page shows, and its name in words.

    It is "test" if all runs of the page ranked the test triples during training, else "valid".
    """
    untraced = [log for log in logs if not log.rankings("test")]
    for log in untraced:
        if not log.rankings("valid"):
            cure = "--validate-every N ranks validation triples, with --probe-test test triples too"
            raise UserError(f"{log.where}: no ranking while training; nscaching train {cure}")
    if untraced and len(untraced) < len(logs):
        notes.append(
            f"{logs[0].model}: validation triples are shown, since {untraced[0].where} ranked no "
            "test triples while training (nscaching train --probe-test)"
        )
    return ("valid", "validation") if untraced else ("test", "test")


def grouped(logs: Sequence[Log], key: Callable[[Log], Any]) -> dict[Any, list[Log]]:
    groups: dict[Any, list[Log]] = {}
    for log in logs:
        groups.setdefault(key(log), []).append(log)
    return groups


def _differing(logs: Sequence[Log], but: Set[str]) -> list[str]:
    names = [name for name in logs[0].settings if name not in but]
    return [name for name in names if len({log.settings[name] for log in logs}) > 1]


def note_differences(logs: Sequence[Log], by: set[str], notes: list[str]) -> None:
    """Note in which settings runs differ besides those that a figure compares them by."""
    if logs and (differ := _differing(logs, {"seed", *by})):
        names = ", ".join(as_flag(name) for name in differ)
        notes.append(f"these runs of {logs[0].model} on {logs[0].data} differ in {names} too")


def labels(
    logs: Sequence[Log], name: Callable[[Log], str], but: Set[str] = frozenset()
) -> dict[Log, str]:
    """Return names of runs, with what tells them apart where runs of one panel share a name.

    Runs of several data sets or models, which panels tell apart, may share names. The settings in
    ``but`` do not tell runs apart.
    """
    result = {log: name(log) for log in logs}
    for group in grouped(logs, lambda log: (log.data, log.model, result[log])).values():
        differ = _differing(group, but)[:2]
        told = {
            log: ", ".join(f"{key.replace('_', ' ')} {log.settings[key]}" for key in differ)
            for log in group
        }
        enough = len(set(told.values())) == len(group)
        for log in group if len(group) > 1 else ():
            result[log] += f", {told[log] if enough else log.name}"
    return result
