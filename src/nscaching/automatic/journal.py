"""The folder of a search: its journal says what was tried, so that the same command continues."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nscaching import files
from nscaching.audit.rules import RULES
from nscaching.automatic.candidates import BASES, FACTORS, Candidate, Changes
from nscaching.automatic.plan import Pace
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import UserError, flag
from nscaching.runs.checkpoints import Checkpoints

JOURNAL = "journal.jsonl"
CANDIDATES, RUN = "candidates", "run"
LEADERBOARD, TABLE, PAGE = "leaderboard.json", "leaderboard.csv", "auto.html"

Event = dict[str, Any]

# The keys of each line, besides what it is and the seconds that were spent until then.
EVENTS: dict[str, dict[str, type]] = {
    "start": {"data": str, "seed": int, "setup": float, "epoch": float, "valid": float},
    "audit": {"findings": list, "rules": dict},
    "candidate": {
        "number": int, "base": str, "changes": dict, "parent": int, "validate_every": int,
        "patience": int,
    },
    "look": {"number": int, "seconds": float, "record": dict},
    "state": {"number": int, "seconds": float, "state": str, "reason": str},
    "run": {"number": int, "folder": str, "epoch": int},
}  # fmt: skip
FIGURES = ("epoch", "mrr", "mr", "hits@1", "hits@3", "hits@10")
STATES = ("stopped", "finished", "failed")


def default_out(graph: KnowledgeGraph) -> Path:
    """Return the folder of a search that was given none: the same for the same data."""
    name = re.sub(r"[^\w.+-]+", "_", graph.name).lstrip(".").lower()
    return Path("auto") / (name or "graph")


def check_folder(path: Path) -> None:
    """Refuse a folder that holds something else than a search, or that cannot exist."""
    with files.writing(path), suppress(FileNotFoundError):
        path.stat()
        if not (path / JOURNAL).is_file() and not (path.is_dir() and not any(path.iterdir())):
            raise UserError(f"{path} exists and holds no search; choose another {flag('out')}")


class Journal:
    """The lines of a search and what they say. Nothing is written before ``begin``."""

    def __init__(self, path: Path, graph: KnowledgeGraph, seed: int) -> None:
        self.path, self.graph, self.seed = path, graph, seed
        self.pace: Pace | None = None  # None: a new search
        self.findings: list[str] = []
        self.rules: dict[str, Any] = {}
        self.audited = False
        self.tried: list[Candidate] = []
        self.run: Event | None = None  # the latest result
        self.spent = 0.0  # seconds of all processes so far, up to their last lines
        self._lock: files.FolderLock | None = None

    def open(self, make: Callable[[Event], Candidate]) -> None:
        """Read the journal of an earlier process, if any, and lock its folder."""
        check_folder(self.path)
        if not (self.path / JOURNAL).is_file():
            return
        self._lock = files.FolderLock(self.path)
        files.cut_last_line(self.path / JOURNAL)
        for line in files.read_lines(self.path / JOURNAL, is_event, "a journal"):
            self._take(line, make)
        saved = self.run["number"] if self.run else 0
        for one in self.tried:
            # A killed process may have written lines but no checkpoint.
            if one.is_open and one.number != saved and not self.checkpoints(one).files():
                one.looks, one.seconds = [], 0.0

    def _take(self, line: Event, make: Callable[[Event], Candidate]) -> None:
        self.spent = max(self.spent, line["spent"])
        kind = line["event"]
        if kind == "start":
            self._check_same(line)
            self.pace = Pace(line["setup"], line["epoch"], line["valid"])
        elif kind == "audit":
            self.findings, self.rules, self.audited = line["findings"], line["rules"], True
        elif kind == "candidate":
            if line["number"] != len(self.tried) + 1 or not 0 <= line["parent"] < line["number"]:
                raise UserError(f"{self.path / JOURNAL}: candidate {line['number']} is misplaced")
            self.tried.append(make(line))
        elif not 1 <= line["number"] <= len(self.tried):
            raise UserError(f"{self.path / JOURNAL}: there is no candidate {line['number']}")
        elif kind == "run":
            self.run = line
        else:
            one = self.tried[line["number"] - 1]
            one.seconds = line["seconds"]
            if kind == "look":
                one.looks = [look for look in one.looks if look["epoch"] < line["record"]["epoch"]]
                one.looks.append(line["record"])
            else:
                one.state, one.reason = line["state"], line["reason"]

    def _check_same(self, line: Event) -> None:
        for what, was, now in (
            ("data", line["data"], self.graph.fingerprint),
            ("seed", line["seed"], self.seed),
        ):
            if was != now:
                difference = f"{what} was {was} and is {now}"
                choice = f"choose another {flag('out')}"
                raise UserError(f"{self.path} holds another search: its {difference}; {choice}")

    def begin(self, pace: Pace, spent: float) -> None:
        """Make the folder."""
        with files.writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock or files.FolderLock(self.path)
        self.pace = pace
        self.write("start", spent, data=self.graph.fingerprint, seed=self.seed, **vars(pace))

    def write(self, event: str, spent: float, **values: Any) -> Event:  # noqa: ANN401
        line = {"event": event, **values, "spent": spent}
        files.append_lines(self.path / JOURNAL, [line])
        return line

    def audit(self, findings: list[str], rules: dict[str, Any], spent: float) -> None:
        self.findings, self.rules, self.audited = findings, rules, True
        self.write("audit", spent, findings=findings, rules=rules)

    def add(self, one: Candidate, spent: float) -> None:
        self.tried.append(one)
        kept = {key: getattr(one, key) for key in EVENTS["candidate"]}
        self.write("candidate", spent, **kept)

    def look(self, one: Candidate, spent: float) -> None:
        record = one.looks[-1]
        self.write("look", spent, number=one.number, seconds=one.seconds, record=record)

    def state(self, one: Candidate, spent: float) -> None:
        values = {"number": one.number, "seconds": one.seconds}
        self.write("state", spent, **values, state=one.state, reason=one.reason)

    def checkpoints(self, one: Candidate) -> Checkpoints:
        return Checkpoints(self.folder(one))

    def folder(self, one: Candidate) -> Path:
        return self.path / CANDIDATES / f"{one.number:02d}"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()


def is_event(value: Any) -> bool:  # noqa: ANN401
    """Say whether a line is one that a search writes: the file may be a stranger's."""
    keys = EVENTS.get(str(value.get("event")), {}) if isinstance(value, dict) else {}
    if not keys or not all(_is(value.get(key), kind) for key, kind in keys.items()):
        return False
    fits = _is(value.get("spent"), float)
    if value["event"] == "candidate":
        fits &= value["base"] in BASES and _are_changes(value["changes"])
        fits &= value["validate_every"] >= 1 and value["patience"] >= 1
    if value["event"] == "look":
        fits &= all(_is(value["record"].get(name), float) for name in FIGURES)
    if value["event"] == "state":
        fits &= value["state"] in STATES
    if value["event"] == "audit":
        fits &= all(isinstance(text, str) for text in value["findings"])
        fits &= all(_are_scores(value["rules"].get(split, {})) for split in ("valid", "test"))
    return bool(fits)


def _is(value: Any, kind: type) -> bool:  # noqa: ANN401
    if kind in (int, float):
        number = isinstance(value, (int, kind)) and not isinstance(value, bool)
        return number and 0 <= value < 1e300
    return isinstance(value, kind)


def _are_changes(changes: Changes) -> bool:
    return all(key in FACTORS and _is(value, float) for key, value in changes.items())


def _are_scores(scores: Any) -> bool:  # noqa: ANN401
    """Say whether these are the figures of the trivial rules on a split: of all rules, or none."""
    return (
        isinstance(scores, dict)
        and scores.keys() in ({*RULES}, {*()})
        and all(
            isinstance(found, dict) and all(_is(found.get(name), float) for name in FIGURES[1:])
            for found in scores.values()
        )
    )
