"""The search: trains candidates in slices until the time is over, then finishes the best."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from nscaching.automatic.candidates import BASES, Candidate, Changes, endless, make_config
from nscaching.automatic.journal import EVENTS, RUN, Event, Journal, check_folder
from nscaching.automatic.pace import measure
from nscaching.automatic.plan import Pace, Step, models, next_step, ranked, share
from nscaching.automatic.result import Auto
from nscaching.automatic.slices import Clock, Slice, Watch, gains_no_more
from nscaching.config import TrainConfig
from nscaching.data.graph import KnowledgeGraph
from nscaching.errors import Stopped, UserError, flag, user_path
from nscaching.files import free_path
from nscaching.kernels import choose_device
from nscaching.runs.run import Run
from nscaching.training.listener import Listener, Stage
from nscaching.training.train import cut_short, train

PROBE, AUDIT = 0.05, 0.1  # the most of the time for measuring the pace, and for the audit
FINISH = 3.0  # seconds for plot, card, report and page
LOOKS = 3  # validations in a slice, where that is possible
CHECKPOINT_SECONDS = 10.0


def auto(
    graph: KnowledgeGraph,
    minutes: float = 5.0,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
    watch: Watch | None = None,
) -> Auto:
    """Try models within a time limit, and return the best by validation MRR with a leaderboard.

    With ``out`` everything is kept in that folder: the same call continues an interrupted search,
    and more ``minutes`` continue one whose time was over; earlier minutes count. Without ``out``
    only the result is left. ``watch`` has the callbacks of the search and may stop it.
    """
    check_minutes(minutes)
    choose_device(device)
    place = {"seed": seed, "device": device, "threads": threads}
    with ExitStack() as held:
        path = None if out is None else user_path(out)
        folder = path or Path(held.enter_context(TemporaryDirectory(prefix="nscaching-")))
        search = Search(graph, minutes, folder, place, watch or Watch())
        return search.run(saved=path is not None)


def check_minutes(minutes: float) -> None:
    if not 0 < minutes < math.inf:
        raise UserError(f"{flag('minutes')} must be a positive number, not {minutes}")


class Search:
    """A search in a folder."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        minutes: float,
        folder: Path,
        place: dict[str, Any],
        watch: Watch,
    ) -> None:
        for split in ("train", "valid"):
            if not len(graph.split(split)):
                what = {"train": "training", "valid": "validation"}[split]
                raise UserError(f"{graph.name} has no {what} triples, which auto needs")
        check_folder(folder)
        self.graph, self.place, self.watch = graph, place, watch
        self.clock = Clock(60 * minutes)
        self.journal = Journal(folder, graph, place["seed"])

    def run(self, saved: bool) -> Auto:
        journal = self.journal
        try:
            journal.open(self._remade)
            self.clock.add(journal.spent)
            if journal.pace is None:
                journal.begin(self._measure(), self.clock.spent)
            if not journal.audited:
                self._audit()
            try:
                self._train()
            except Stopped:
                if saved:
                    self._result(None, saved).write()
                raise
            result = self._result(self._finish(saved), saved)
            if saved:
                result.write()
            return result
        finally:
            journal.close()

    # Before the first training.

    def make(self, base: str, changes: Changes) -> TrainConfig:
        return make_config(self.graph, base, changes, self.place)

    def _measure(self) -> Pace:
        config = endless(self.make(next(iter(BASES)), {}), 1)
        pace = measure(self.graph, config, PROBE * self.clock.seconds, self.watch)
        least = self._reserve(pace) + pace.setup + pace.look
        if self.clock.left < least:
            minutes = math.ceil(10 * (self.clock.spent + 2 * least) / 60) / 10
            parts = {
                "getting ready": self.clock.spent,
                f"an epoch of {config.model} with its validation": pace.look,
                "the result": least - pace.look,
            }
            needs = ", ".join(f"{what} takes {part:.1f} s" for what, part in parts.items())
            asked = f"{flag('minutes')} {self.clock.seconds / 60:g}"
            raise UserError(f"{asked} is too short: {needs}; give at least {minutes:g}")
        return pace

    def _reserve(self, pace: Pace) -> float:
        """Return the seconds to make the result: ranking of the test triples, plot, report."""
        per_triple = pace.valid / len(self.graph.valid)
        return FINISH + pace.setup + per_triple * len(self.graph.test)

    def _audit(self) -> None:
        deadline = self.clock.spent + AUDIT * self.clock.seconds

        def report(what: str, done: float, of: float) -> None:
            doing = f"audit: {what} {100 * done / of:.0f}%"
            self.watch.progress(self.clock.spent, self.clock.seconds, doing)
            if self.watch.stop():
                raise Stopped(f"stopped; the same command continues in {self.journal.path}")
            if self.clock.spent > deadline:
                raise TimeoutError

        try:
            found = self.graph.audit(report)
            findings, rules = found.sentences(), found.rules
        except TimeoutError:
            took = f"{AUDIT:.0%} of the time"
            findings, rules = [f"the audit was left out: it takes more than {took}"], {}
        self.journal.audit(findings, rules, self.clock.spent)
        for line in findings:
            self.watch.announce(line)

    # Training.

    def _train(self) -> None:
        pace = self.journal.pace
        assert pace is not None
        seconds = self.clock.seconds - self._reserve(pace)
        names, each = models(seconds, pace), share(seconds, pace)
        while self.clock.left > self._reserve(pace) + pace.setup + pace.look:
            step = next_step(self.journal.tried, names, each, self.make)
            if step is None:
                return
            self._slice(step.candidate or self._new(step, each, pace), step.seconds)

    def _new(self, step: Step, each: float, pace: Pace) -> Candidate:
        """Begin a candidate, which is validated a few times within a share of the time.

        It ends after as many epochs without a gain as the settings for the graph say.
        """
        config = self.make(step.base, step.changes)
        often = max(1, int(each / (LOOKS * max(pace.epoch, 1e-9))))
        every = min(config.validate_every, often)
        patience = math.ceil(config.patience * config.validate_every / every)
        number = len(self.journal.tried) + 1
        settings = step.base, dict(step.changes), step.parent, every, patience
        one = Candidate(number, *settings, endless(config, every))
        self.journal.add(one, self.clock.spent)
        return one

    def _remade(self, line: Event) -> Candidate:
        """Make a candidate of an earlier process again."""
        config = endless(self.make(line["base"], line["changes"]), line["validate_every"])
        return Candidate(**{name: line[name] for name in EVENTS["candidate"]}, config=config)

    def _slice(self, one: Candidate, until: float) -> None:
        journal, clock = self.journal, self.clock
        assert journal.pace is not None
        listener = Slice(
            one,
            until,
            clock,
            self._reserve(journal.pace),
            self.watch,
            lambda candidate: journal.look(candidate, clock.spent),
        )
        try:
            train(
                self.graph,
                one.config,
                listener=listener,
                checkpoints=journal.folder(one),
                checkpoint_every=CHECKPOINT_SECONDS,
            )
        except Stopped as stop:
            one.state = "finished" if gains_no_more(one) else "stopped"
            if not journal.checkpoints(one).files():  # such as on a full disk
                one.state, one.reason = "failed", str(stop)
        except UserError as error:  # divergence, or lack of memory
            one.state, one.reason = "failed", " ".join(str(error).split())
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        journal.state(one, clock.spent)
        best = ranked(journal.tried)
        self._remove_checkpoints(best)
        self.watch.end(one, best[:1] == [one])
        if listener.asked:
            so_far = f"; best so far: {best[0].name}, MRR {best[0].mrr:.4f}" if best else ""
            raise Stopped(f"stopped{so_far}; the same command continues in {journal.path}")

    def _remove_checkpoints(self, best: list[Candidate]) -> None:
        """Free the disk of what no later slice needs."""
        for one in self.journal.tried:
            kept = self.journal.checkpoints(one)
            if one.is_open or best[:1] == [one]:
                kept.keep_newest()
            elif kept.files():
                kept.remove()
                self.journal.folder(one).rmdir()

    # The result.

    def _finish(self, saved: bool) -> Run | None:
        """Return the run of the best candidate, in its folder if the search is ``saved``."""
        journal, known = self.journal, self.journal.run
        while leader := self._leader():
            folder = journal.path / Path(known["folder"]).name if known else None
            now = leader.number, leader.best["epoch"] if leader.best else -1
            if known and folder and now == (known["number"], known["epoch"]) and folder.is_dir():
                return Run.load(folder, self.place["device"])
            run = cut_short(self.graph, leader.config, journal.folder(leader), _Showing(self))
            found = run.result("valid") if run else None
            if run is None or found is None:
                leader.state, leader.reason = "failed", "its checkpoint is gone or damaged"
                continue
            before, leader.looks = leader.mrr, [r for r in run.history if r.get("split") == "valid"]
            if leader.mrr < before:  # a killed process had no checkpoint of its best epoch
                continue
            if saved:
                path = run.save(free_path(journal.path / RUN))
                values = {"number": leader.number, "folder": path.name, "epoch": run.best_epoch}
                journal.run = journal.write("run", self.clock.spent, **values)
            return run
        return None

    def _leader(self) -> Candidate | None:
        """Return the best candidate, or one that was never validated if there is no other."""
        journal = self.journal
        saved = journal.run["number"] if journal.run else 0
        begun = [
            one for one in journal.tried if one.number == saved or journal.checkpoints(one).files()
        ]
        best = [one for one in ranked(journal.tried) if one in begun]
        return next(iter(best or [one for one in begun if one.state != "failed"]), None)

    def _result(self, run: Run | None, saved: bool) -> Auto:
        journal = self.journal
        return Auto(
            graph=self.graph,
            minutes=self.clock.seconds / 60,
            spent=self.clock.spent,
            tried=journal.tried,
            findings=journal.findings,
            rules=journal.rules,
            run=run,
            path=journal.path if saved else None,
            seed=self.place["seed"],
            make=self.make,
        )


class _Showing(Listener):
    """Passes the progress of the last ranking to the watch."""

    def __init__(self, search: Search) -> None:
        self.watch: Watch = search.watch
        self.clock: Clock = search.clock

    def note(self, text: str) -> None:
        self.watch.announce(text)

    def progress(self, stage: Stage, done: int, total: int) -> None:
        doing = f"{stage.value} {100 * done // total}%"
        self.watch.progress(self.clock.spent, self.clock.seconds, f"the best: {doing}")
