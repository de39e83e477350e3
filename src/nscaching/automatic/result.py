"""The result of a search: the best run, the leaderboard, and what more time would be used for."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.audit.rules import RULES
from nscaching.automatic.candidates import BASES, Candidate
from nscaching.automatic.journal import LEADERBOARD, PAGE, TABLE
from nscaching.automatic.plan import MakeConfig, ranked, untried
from nscaching.data.graph import KnowledgeGraph, Source
from nscaching.errors import as_flag
from nscaching.files import write_text
from nscaching.runs.run import Run
from nscaching.training.defaults import describe

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")
COLUMNS = ("candidate", "kind", *METRICS, "best_epoch", "epochs", "seconds", "state", "settings")
STATES = {"new": "not begun", "stopped": "stopped early", "finished": "gains no more"}


@dataclass(frozen=True, eq=False, repr=False)
class Auto:
    """What ``auto`` returns: ``run`` is the best by validation MRR, None if there is none yet."""

    graph: KnowledgeGraph
    minutes: float
    spent: float  # seconds, of earlier processes too
    tried: Sequence[Candidate]
    findings: Sequence[str]  # of the audit
    rules: dict[str, Any]  # split → trivial rule → metrics
    run: Run | None
    path: Path | None
    seed: int
    make: MakeConfig

    def __repr__(self) -> str:
        count = f"{len(self.tried)} candidate{'s' if len(self.tried) != 1 else ''}"
        best = ranked(self.tried)
        leads = f"{best[0].name} with validation MRR {best[0].mrr:.4f}" if best else "none yet"
        return f"Auto({self.graph.name}: {count} in {self.spent:.0f} s; the best: {leads})"

    @property
    def leaderboard(self) -> list[dict[str, Any]]:
        """Candidates and trivial rules by validation MRR, as rows for a data frame."""
        rows = [self._row(one) for one in self.tried]
        rows += [
            dict.fromkeys(COLUMNS) | {"candidate": RULES[rule], "kind": "rule"} | _figures(found)
            for rule, found in self.rules.get("valid", {}).items()
        ]
        return sorted(
            rows, key=lambda row: -1.0 if row["mrr"] is None else row["mrr"], reverse=True
        )

    def _row(self, one: Candidate) -> dict[str, Any]:
        shown = dict.fromkeys(COLUMNS) | {"candidate": one.name, "kind": "model"}
        shown |= {
            "seconds": one.seconds,
            "settings": describe(one.config).partition(", at most")[0],
        }
        shown["state"] = STATES.get(one.state, f"failed: {one.reason}")
        if one.best and one.state != "failed":
            epochs = one.looks[-1]["epoch"]
            shown |= _figures(one.best) | {"best_epoch": one.best["epoch"], "epochs": epochs}
        return shown

    @property
    def test(self) -> dict[str, Any] | None:
        """The test figures of the best: those of the others are never computed."""
        return self.run.result("test") if self.run else None

    @property
    def verdict(self) -> str:
        """Say whether the models know more than the trivial rules, empty if nothing is known."""
        rules, best = self.rules.get("valid", {}), ranked(self.tried)
        if not rules or not best:
            return ""
        known = max(found["mrr"] for found in rules.values())
        if best[0].mrr > known:
            return f"the best model is above the trivial rules, whose validation MRR is {known:.3f}"
        said = f"no model is above the trivial rules, whose validation MRR is {known:.3f}"
        return f"{said}: see nscaching audit"

    def advice(self) -> list[str]:
        """Say what more time would be used for, the most useful first; empty: for nothing."""
        best = ranked(self.tried)
        if not best:
            return ["no candidate was validated: give more time"]
        leader, said = best[0], []
        if leader.is_open:
            since = f"{leader.without_gain} of {leader.patience} validations without a gain"
            how = since if leader.without_gain else "its last validation was its best"
            said.append(f"train {leader.name} on: it was stopped in training; {how}")
        if others := [one.name for one in best[1:] if one.is_open]:
            said.append(f"train on what was stopped early: {_few(others)}")
        begun = {one.base for one in self.tried}
        if missing := [base for base in BASES if base not in begun]:
            said.append(f"try models that there was no time for: {_few(missing)}")
        if variants := untried(self.tried, leader, self.make):
            names = [dataclasses.replace(leader, changes=changes).name for changes in variants]
            said.append(f"try variants of the best: {_few(names)}")
        return said

    def command(self) -> str:
        """Return the command line that goes on with twice the time, or else that searches finer."""
        data = self.graph.source.data or self.graph.name
        words = ["nscaching", "tune", data, "--model", ranked(self.tried)[0].config.model]
        if on := self.advice():
            within = self.spent <= 66 * self.minutes  # but for a validation
            minutes = 2 * (self.minutes if within else self.spent / 60)
            words = ["nscaching", "auto", data, "--minutes", f"{minutes:.3g}"]
        settings, defaults = vars(self.graph.source), vars(Source()) | {"data": None}
        for name, value in (settings | {"seed": self.seed}).items():
            if name == "data" or value == (defaults | {"seed": 0})[name]:
                continue
            words += [as_flag(name)] if value is True else [as_flag(name), str(value)]
        if on and self.path is not None:
            words += ["--out", str(self.path)]
        return " ".join(map(shlex.quote, words))

    def to_dict(self) -> dict[str, Any]:
        """Return the result; numbers, names and lists only."""
        run = self.run
        return {
            "graph": self.graph.name,
            "minutes": self.minutes,
            "spent_seconds": self.spent,
            "findings": list(self.findings),
            "leaderboard": self.leaderboard,
            "best": run and {"run": run.path and str(run.path), "settings": run.config.to_dict()},
            "valid": run and run.result("valid"),
            "test": self.test,
            "verdict": self.verdict,
            "with_more_time": self.advice(),
        }

    def write(self) -> None:
        """Write the leaderboard, as JSON and as CSV, and the page into the folder."""
        from nscaching.automatic.page import render

        assert self.path is not None
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        write_text(self.path / LEADERBOARD, text)
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.leaderboard)
        write_text(self.path / TABLE, out.getvalue())
        write_text(self.path / PAGE, render(self))


def _figures(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in METRICS}


def _few(names: Sequence[str], most: int = 4) -> str:
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *more])
