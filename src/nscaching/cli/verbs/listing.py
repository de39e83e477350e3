"""The verbs ``datasets`` and ``presets``, which list what is known by name."""

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import cells, print_table, say
from nscaching.cli.verbs._base import Csv, Json, one_form, print_plain
from nscaching.errors import as_flag


@dataclass(frozen=True)
class Datasets:
    """List the data sets that are known by name.

    nscaching datasets
    """

    json: Json = False
    csv: Csv = False

    def run(self) -> None:
        from nscaching.data import datasets
        from nscaching.data.graph import SPLITS, KnowledgeGraph
        from nscaching.data.load import WORLD

        one_form(self.json, self.csv)
        graph, columns = KnowledgeGraph.load(WORLD), ("entities", "relations", *SPLITS)
        sizes = {column: len(getattr(graph, column)) for column in columns}
        rows: dict[str, dict[str, Any]] = {"world": {"title": "countries, embedded", **sizes}}
        for name, known in datasets.KNOWN.items():
            rows[name] = {field: getattr(known, field) for field in ("title", *columns)}
        for name, row in rows.items():
            row["here"] = name == "world" or datasets.is_cached(name)
        lines = ({"name": name} | row for name, row in rows.items())
        if print_plain(self.json, self.csv, rows, lines):
            return
        here = {True: "yes", False: "on first use"}
        table = [[name, *cells(row, *columns), here[row["here"]]] for name, row in rows.items()]
        print_table(["name", *columns, "here"], table)
        say(f"Data sets are kept in {datasets.cache_home()} (NSCACHING_HOME changes that).")


@dataclass(frozen=True)
class Presets:
    """List the presets: settings for a data set and a scoring function, for train --preset.

    nscaching presets
    """

    json: Json = False
    csv: Csv = False

    def run(self) -> None:
        from nscaching.config import TrainConfig
        from nscaching.paper.presets import load, names, variants

        one_form(self.json, self.csv)
        defaults = TrainConfig().flat()
        rows: dict[str, dict[str, Any]] = {}
        for name in names():
            for variant in variants(name):
                data, config = load(name, variant)
                settings = config.flat()
                rows.setdefault(name, {"data": data, "model": settings.pop("model")})
                rows[name][variant] = {k: v for k, v in settings.items() if v != defaults[k]}
        lines = (
            {"name": f"{name}:{variant}"} | {k: row[k] for k in ("data", "model")} | row[variant]
            for name, row in rows.items()
            for variant in variants(name)
        )
        if print_plain(self.json, self.csv, rows, lines):
            return
        table = [
            [f"{name}:{variant}", " ".join(_flag(k, v) for k, v in row[variant].items())]
            for name, row in rows.items()
            for variant in variants(name)
        ]
        print_table(["name", "settings"], table, words=(0, 1))
        say("nscaching train --preset NAME takes NAME:cache, or NAME:best if that is all there is.")


def _flag(name: str, value: object) -> str:
    return as_flag(name) if value is True else f"{as_flag(name)} {value}"
