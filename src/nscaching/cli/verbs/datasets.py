"""The verb ``datasets``."""

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import cells, print_json, print_table, say
from nscaching.cli.verbs._base import Json


@dataclass(frozen=True)
class Datasets:
    """List the data sets that are known by name.

    nscaching datasets
    """

    json: Json = False

    def run(self) -> None:
        from nscaching.data import datasets
        from nscaching.data.graph import SPLITS, KnowledgeGraph
        from nscaching.data.load import WORLD

        graph = KnowledgeGraph.load(WORLD)
        sizes = [len(graph.entities), len(graph.relations), *(len(graph.split(s)) for s in SPLITS)]
        world = datasets.KnownDataset("world", "", "countries, embedded", *sizes)
        columns = ("entities", "relations", *SPLITS)
        rows: dict[str, dict[str, Any]] = {}
        for known in (world, *datasets.KNOWN.values()):
            rows[known.name] = {field: getattr(known, field) for field in ("title", *columns)}
            rows[known.name]["here"] = known is world or datasets.is_cached(known.name)
        if self.json:
            print_json(rows)
            return
        here = {True: "yes", False: "on first use"}
        table = [[name, *cells(row, *columns), here[row["here"]]] for name, row in rows.items()]
        print_table(["name", *columns, "here"], table)
        say(f"Data sets are kept in {datasets.cache_home()} (NSCACHING_HOME changes that).")
