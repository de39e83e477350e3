"""The page: its data, and HTML from the templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.config import TrainConfig
from nscaching.data.graph import MAPPING_CLASSES, KnowledgeGraph
from nscaching.data.index import Ids, Longs, Side
from nscaching.errors import UserError, flag, reading, user_path
from nscaching.evaluation.classify import score_triples
from nscaching.evaluation.ranking import Progress, Queries, breakdown, rank
from nscaching.evaluation.ranks import Ranks
from nscaching.files import check_new_file, write_text
from nscaching.runs.card import command, kept
from nscaching.runs.folder import REPORT, has_ended, resume_command
from nscaching.runs.inspect import CachedQuery, cache_at, recorded_epochs
from nscaching.runs.report import markup
from nscaching.runs.report.charts import Series, chart, panels
from nscaching.runs.report.markup import templates
from nscaching.runs.rising import advice
from nscaching.runs.settings import full_record
from nscaching.samplers.objective import choose_objective

if TYPE_CHECKING:
    from nscaching.runs.run import Run

MOST_RELATIONS = 1000  # that are listed
EACH = 3  # questions with the right answer first, and questions with another one first
TOP = 5  # answers that are shown
LOOKED_AT = 1000  # triples among which different relations are looked for
QUERIES = 4  # whose cache is shown
SHOWN = 6  # entities of a cache row that are shown, and known answers

# The first and last bytes of every report, also of reports by older versions.
BEGIN = b'<!doctype html>\n<html lang="en">\n<head>\n'
END = b"<footer>Written by nscaching.</footer>\n</body>\n</html>\n"


def report(
    run: Run, path: str | Path = "", overwrite: bool = False, progress: Progress | None = None
) -> Path:
    """Write the report, one HTML page, to a path or else into the run folder.

    The report in the run's own folder is replaced; any other file only with ``overwrite``.
    ``progress`` receives the progress of a ranking, if one is needed.
    """
    if not path and run.path is None:
        raise UserError("the run is not saved: say where to write its report")
    target = user_path(path or (run.path or Path()) / REPORT)
    check_new_file(target, flag("out", "path"), overwrite or _is_own(run, target))
    write_text(target, render(run, progress), shared=True)
    return target


def _is_own(run: Run, path: Path) -> bool:
    """Say whether a file is a report that nscaching wrote into the run's folder."""
    if run.path is None or path.is_symlink() or not path.is_file():
        return False
    if path.resolve() != run.path.resolve() / REPORT:
        return False
    with reading(path), path.open("rb") as file:  # not whole: a stranger's file may be huge
        begin = file.read(len(BEGIN))
        file.seek(max(0, path.stat().st_size - len(END)))
        return (begin, file.read()) == (BEGIN, END)


def render(run: Run, progress: Progress | None = None) -> str:
    """Return the report of a run; rank the held-out triples unless training has just done so."""
    ranking = held_out(run, progress)
    degrees = np.bincount(run.graph.train[:, [0, 2]].ravel(), minlength=len(run.graph.entities))
    settings, defaults = run.config.flat(), TrainConfig().flat()
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    page = templates().get_template("page.html")
    return page.render(
        run=run,
        epochs=sum("split" not in record for record in run.history),
        resume=resume_command(run.path) if run.path and not has_ended(run.path) else "",
        panels=panels(run.history, run.best_epoch, left_out(run)),
        longer=advice(run),
        kept=kept(run),
        ranking=ranking,
        most_relations=MOST_RELATIONS,
        examples=examples(run, ranking["split"], ranking["ranks"]) if ranking else [],
        each=EACH,
        likely=likely(run, ranking["split"]) if ranking else {},
        cache=cache(run),
        median_degree=float(np.median(degrees)),
        most_degree=int(degrees.max(initial=0)),
        classes=classes(run.graph),
        changed=changed,
        usual={name: value for name, value in settings.items() if name not in changed},
        defaults=defaults,
        command=command(run),
        record=full_record(run.graph, run.record),
    )


def left_out(run: Run) -> set[str]:
    """Return the figures that say nothing: only a margin leaves triples without a loss."""
    margin = choose_objective(run.config, run.model) == "margin"
    return set() if margin else {"nonzero_loss"}


def classes(graph: KnowledgeGraph) -> list[tuple[str, int, int]]:
    of_relation = np.array(graph.mapping_classes)
    triples = np.bincount(graph.train[:, 1], minlength=len(of_relation))
    return [
        (kind, int(here.sum()), int(triples[here].sum()))
        for kind in MAPPING_CLASSES
        if (here := of_relation == kind).any()
    ]


def held_out(run: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Rank the test triples, or else the validation triples; empty if there are neither.

    The figures are the metrics overall, by mapping class and by relation.
    """
    split = "test" if len(run.graph.test) else "valid"
    triples = run.graph.split(split)
    if not len(triples):
        return {}
    ranks = run.test_ranks if split == "test" else None
    if ranks is None:
        queries = Queries(run.graph, triples, device=run.model.entity.device)
        ranks = rank(run.model, queries, progress=progress)
    return {"split": split, "ranks": ranks, "figures": breakdown(run.graph, triples, ranks)}


def likely(run: Run, split: str) -> dict[str, Any]:
    """Return how far the probabilities of a split can be trusted; empty without probabilities."""
    try:
        if run.calibrated() is None:
            return {}
        found = run.evaluate(split, "calibration")
    except UserError as reason:  # such as a file of negatives that are all known
        return {"missing": str(reason)}
    line = Series("true", [(one["probability"], one["share"]) for one in found["bins"]])
    return found | {"missing": "", "chart": chart([line], 1.0, shares=True)}


def examples(run: Run, split: str, ranks: dict[Side, Ranks]) -> list[dict[str, Any]]:
    """Return questions chosen by seed: first those with the right answer first, then others."""
    random = np.random.default_rng(run.config.seed)
    sides, triples = list(Side), run.graph.split(split)
    rank = np.stack([ranks[side].resolve("realistic") for side in sides])  # [2, n]
    cards = []
    for right in (True, False):
        which = random.permutation(np.flatnonzero((rank == 1) == right))[:LOOKED_AT]
        for place in varied(which, triples[which % len(triples), 1], EACH):
            side, row = divmod(place, len(triples))
            cards.append(_example(run, sides[side], triples[row].tolist(), float(rank[side, row])))
    return cards


def varied(places: Sequence[int] | Longs, relations: Sequence[int] | Ids, count: int) -> list[int]:
    """Choose the first place of each relation, then the first other places, ``count`` in all."""
    _, first = np.unique(relations, return_index=True)
    others = np.setdiff1d(np.arange(len(places)), first)
    return [int(places[i]) for i in (*np.sort(first), *others)[:count]]


def _example(run: Run, side: Side, triple: list[int], rank: float) -> dict[str, Any]:
    graph, (head, relation, tail) = run.graph, triple
    anchor, answer = side.query(head, tail)
    given: dict[str, Any] = {"head" if side is Side.TAIL else "tail": graph.entities[anchor]}
    given["relation"] = graph.relations[relation]
    found = run.predict(**given, top=TOP, known="mark", any_type=True).queries[0]
    place = 0
    for one in found["answers"]:
        one["right"] = one["name"] == graph.entities[answer]
        counts = one["right"] or not one["known"]  # other true answers do not count
        place += counts
        one["place"] = place if counts else "–"
    if not any(one["right"] for one in found["answers"]):
        score = float(score_triples(run.model, np.array([triple], dtype=np.int32))[0])
        right = {"label": graph.label(answer), "score": score, "known": "", "right": True}
        found["answers"].append(right | {"place": markup.number(rank)})
    return found | {"rank": rank}


def cache(run: Run) -> dict[str, Any]:
    """Return the cache of the queries of some training triples; empty for a run without a cache.

    Each query has a row of its cache at the start and at the last recorded epoch; ``missing``
    says why a row is not shown.
    """
    epochs = recorded_epochs(run)
    if not epochs:
        return {}
    queries = _queries(run)
    cards: list[dict[str, Any]] = []
    for query in queries:
        true = [run.graph.label(entity) for entity in sorted(query.known)[:SHOWN]]
        cards.append(query.names | {"true": true, "known": len(query.known), "rows": {}})
    missing = [] if 0 in epochs else ["The start was not recorded (--snapshots 0 does that)."]
    for epoch in sorted({0, epochs[-1]}.intersection(epochs)):
        try:
            found = cache_at(run, epoch)
        except UserError as reason:
            missing.append(f"Not shown: {reason}.")
            continue
        for query, card in zip(queries, cards, strict=True):
            entities = np.unique(found[query.side][query.row].cpu().numpy())
            title = f"after epoch {epoch:,}" if epoch else "before"
            card["rows"][title] = query.scored(entities)
    return {"cards": [card for card in cards if card["rows"]], "missing": missing, "shown": SHOWN}


def _queries(run: Run) -> list[CachedQuery]:
    """Choose queries of training triples by seed, of different relations and both sides."""
    triples = run.graph.train
    rows = np.random.default_rng(run.config.seed).permutation(len(triples))[:LOOKED_AT]
    queries = []
    for i, row in enumerate(varied(rows, triples[rows, 1], QUERIES)):
        side = (Side.TAIL, Side.HEAD)[i % 2]
        head, relation, tail = triples[row].tolist()
        queries.append(CachedQuery(run, side, side.query(head, tail)[0], relation))
    return queries
