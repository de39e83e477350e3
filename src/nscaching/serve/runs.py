"""A run that is served: what answers need, kept in memory once; vectors stay on the disk."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import escape

from nscaching.data.index import Ids
from nscaching.data.names import LOCAL
from nscaching.errors import UserError, user_path
from nscaching.evaluation.answers import Known, Question, Recall, ask
from nscaching.probes.files import Snapshots
from nscaching.runs.escaping import shorten
from nscaching.runs.folder import CACHE, result_of
from nscaching.runs.quick import QuickRun, open_quickly
from nscaching.serve.batching import Asked, Batcher
from nscaching.serve.facts import Facts
from nscaching.serve.names import NameIndex, fold
from nscaching.serve.nearest import Nearest
from nscaching.serve.refusals import Refusal
from nscaching.serve.shapes import Figures, Found, Named, RunInfo

if TYPE_CHECKING:
    from nscaching.runs.run import Run

LONGEST = 300  # characters of a name in an address; a longer one is asked for by its number
SHOWN = 200  # characters of a label
PATIENCE = 25.0  # seconds that a request waits for slow work, which then goes on
MOST_NEAR = 50  # names among which the one that is meant is looked for
KEPT = 200  # results of slow work
MOST_WAITING = 16  # slow pieces of work
_KNOWN: dict[bool, Known] = {False: "hide", True: "mark"}


class ServedRun:
    """One run and all that is made for its answers; runs share nothing."""

    def __init__(self, slug: str, path: str | Path, trust: bool = False) -> None:
        self.slug, self.folder, self.trust = slug, user_path(path), trust
        self._whole: Run | None = None
        self._loading = Lock()
        quick = open_quickly(self.folder, trust)
        if quick is None:
            quick = _as_quick(self.whole())
        self.graph, self.config, self.history = quick.graph, quick.config, quick.history
        self.epoch, self.calibration = quick.best_epoch, quick.calibration
        self.scores = quick.scores
        self.recall, self.facts = Recall(self.graph), Facts(self.graph)
        self.nearest = Nearest(quick.vectors)
        self._index_names()
        # Answers, reasons, and what is made once have a thread each: no kind delays another.
        self.fast, self.slow, self.making = (ThreadPoolExecutor(1) for _ in range(3))
        self.batcher = Batcher(self._answer_all, self.fast)
        self.kept: OrderedDict[tuple[Any, ...], asyncio.Future[Any]] = OrderedDict()

    def _index_names(self) -> None:
        graph = self.graph
        self.relation_links = np.bincount(self.facts.triples[:, 1], minlength=len(graph.relations))
        entities = ((graph.label(i), n, graph.short(n)) for i, n in enumerate(graph.entities))
        self.names = NameIndex(entities, self.facts.links)
        relations = ((graph.relation_label(i), n) for i, n in enumerate(graph.relations))
        self.relation_names = NameIndex(relations, self.relation_links)
        for look in (graph.known_entity, graph.known_relation):
            look("\0")  # which builds what later look-ups need

    def whole(self) -> Run:
        """Return the run with its model in PyTorch; loading takes seconds, so only threads ask."""
        with self._loading:
            if self._whole is None:
                from nscaching.runs.run import Run

                self._whole = Run.load(self.folder, trust=self.trust)
            return self._whole

    # Names.

    async def entity(self, text: str) -> int:
        """Return the entity of a name, a label or #number."""
        return await self._find("entity", text, self.graph.known_entity, self.names)

    async def relation(self, text: str) -> int:
        """Return the relation of a name, a label or #number."""
        return await self._find("relation", text, self.graph.known_relation, self.relation_names)

    async def _find(
        self, kind: str, text: str, exact: Callable[[str], int | None], names: NameIndex
    ) -> int:
        try:
            found = exact(text)
        except UserError:  # several have the label
            found = None
        if found is None:  # a search takes longer: it must not keep others waiting
            found = await self.quickly(self._search, kind, text, names)
        return found

    def _search(self, kind: str, text: str, names: NameIndex) -> int:
        """Return what is meant by a text that is no name, or say what is near."""
        show = self.named if kind == "entity" else self.named_relation
        if (number := re.fullmatch(r"#([0-9]{1,9})", text)) and int(number[1]) < names.size:
            return int(number[1])
        near = names.search(text, MOST_NEAR)
        same = [i for i in near if show(i)["label"] == text]
        if len(same) > 1:
            what = f"several have the label {shorten(text, 80)!r}: which?"
            raise Refusal("ambiguous_name", what, [show(i) for i in same], kind)
        near = near or names.near(text, MOST_NEAR)
        same = [i for i in near if fold(text) in _called(show(i))]
        if len(same) == 1:
            return same[0]
        what = f"no {kind} is called {shorten(text, 80)!r}"
        raise Refusal("unknown_name", what, [show(i) for i in near[:8]], kind)

    def named(self, entity: int) -> Named:
        return _named(self.graph.entities[entity], self.graph.label(entity), entity)

    def named_relation(self, relation: int) -> Named:
        name, label = self.graph.relations[relation], self.graph.relation_label(relation)
        return _named(name, label, relation)

    def found(self, entities: Sequence[int]) -> list[Found]:
        return [{**self.named(i), "facts": int(self.facts.links[i])} for i in entities]

    def found_relations(self, relations: Sequence[int]) -> list[Found]:
        links = self.relation_links
        return [{**self.named_relation(i), "facts": int(links[i])} for i in relations]

    # Work in threads.

    def _answer_all(self, questions: Sequence[Asked]) -> list[dict[str, Any] | Exception]:
        """Answer questions by id; those asked in the same way at once."""
        ways: dict[tuple[Any, ...], list[int]] = {}
        for place, one in enumerate(questions):
            ways.setdefault(one.way, []).append(place)
        answers: list[dict[str, Any] | Exception] = [{} for _ in questions]
        for (gap, top, mark, any_type), places in ways.items():
            ids: Ids = np.array([questions[i].ids for i in places], dtype=np.int32).T
            question, known = Question(self.graph, ids, gap, True), _KNOWN[mark]
            likely = self.calibration, None
            try:
                found = ask(self.scores, question, top, known, any_type, likely, self.recall)
            except UserError as error:
                for place in places:
                    answers[place] = error
            else:
                for place, answer in zip(places, found.queries, strict=True):
                    answers[place] = answer
        return answers

    async def quickly(self, work: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(self.fast, work, *given)

    async def slowly(
        self, key: tuple[Any, ...], work: Callable[[], Any], once: bool = False
    ) -> Any:  # noqa: ANN401
        """Return the result of slow work; whoever waits too long may return, the work goes on.

        Work that is done ``once`` in the life of a run may take minutes.
        """
        future = self.kept.get(key)
        if future is None:
            if sum(not each.done() for each in self.kept.values()) >= MOST_WAITING:
                raise Refusal("busy", "too much slow work waits; ask again")
            thread = self.making if once else self.slow
            future = asyncio.get_running_loop().run_in_executor(thread, work)
            self.kept[key] = future
            while len(self.kept) > KEPT and next(iter(self.kept.values())).done():
                self.kept.popitem(last=False)
        self.kept.move_to_end(key)
        try:
            return await asyncio.wait_for(asyncio.shield(future), PATIENCE)
        except TimeoutError:
            raise Refusal("busy", "this takes longer; it goes on: ask again in a minute") from None
        except Exception:
            self.kept.pop(key, None)
            raise

    @property
    def working(self) -> bool:
        """Whether slow work goes on."""
        return any(not future.done() for future in self.kept.values())

    def close(self) -> None:
        for threads in (self.fast, self.slow, self.making):
            threads.shutdown(wait=False, cancel_futures=True)

    # About the run.

    def info(self) -> RunInfo:
        graph, config = self.graph, self.config
        snapshots = len(Snapshots(self.folder)) > 0
        return {
            "run": self.slug,
            "data": shorten(graph.name, SHOWN),
            "model": config.model.rpartition("/")[2],
            "sampler": config.sampler.rpartition("/")[2],
            "dim": config.dim,
            "epoch": self.epoch,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "train": len(graph.train),
            "valid": len(graph.valid),
            "test": len(graph.test),
            "figures": self._figures(),
            "probabilities": self.calibration is not None,
            "cache": snapshots or (self.folder / CACHE).is_file(),
        }

    def _figures(self) -> Figures | None:
        for split in ("test", "valid"):
            found = result_of(self.history, self.epoch, split)
            if found is not None:
                return {
                    "split": split,
                    "mrr": float(found["mrr"]),
                    "mr": float(found["mr"]),
                    "hits_at_1": float(found["hits@1"]),
                    "hits_at_10": float(found["hits@10"]),
                }
        return None

    def without_paths(self, text: str) -> str:
        """Return text in which no folder of this machine is named."""
        for secret in self._secrets():
            for written in (secret, str(escape(secret))):
                text = text.replace(written, Path(secret).name)
        return text

    def _secrets(self) -> list[str]:
        source, folder = self.graph.source, self.folder
        paths = {str(folder), str(folder.absolute()), str(folder.resolve())}
        above = {*folder.resolve().parents, Path.home()}
        paths |= {str(p) for p in above if len(p.parts) > 2}
        given = (source.data, source.labels, self.config.pretrain, self.config.model)
        for one in (*given, self.config.sampler):
            if "/" in one:
                paths |= {one, str(Path(one).parent)}
        return sorted((path for path in paths if len(path) > 3 and "/" in path), key=len)[::-1]


def _named(name: str, label: str, number: int) -> Named:
    """A name that no address can hold is replaced by the number."""
    usable = 0 < len(name) <= LONGEST and name == name.strip()
    return {"name": name if usable else f"#{number}", "label": shorten(label, SHOWN)}


def _called(named: Named) -> set[str]:
    """Return what an entity is called, in no case: name, label, and what follows the last mark."""
    local = LOCAL.fullmatch(named["name"])
    name, label = named["name"], named["label"]
    return {fold(text) for text in (name, label, local[1] if local else name)}


def _as_quick(run: Run) -> QuickRun:
    """Return a run whose scores only PyTorch can compute as one that answers as a quick one."""
    from nscaching.evaluation.torch_scores import TorchScores

    return QuickRun(
        run.graph,
        run.config,
        TorchScores(run.model),
        run.embeddings.entity,
        run.calibrated(),
        run.history,
        run.best_epoch,
    )


def open_runs(
    paths: Sequence[Path], trust: bool = False, opened: Callable[[int], None] | None = None
) -> list[ServedRun]:
    """Open run folders; each is called as its folder, or NAME-2 where that name is taken."""
    served: list[ServedRun] = []
    for number, path in enumerate(paths, 1):
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", user_path(path).resolve().name).strip(".-") or "run"
        slug, more = name, 1
        while slug in {one.slug for one in served}:
            more += 1
            slug = f"{name}-{more}"
        served.append(ServedRun(slug, path, trust))
        if opened is not None:
            opened(number)
    return served
