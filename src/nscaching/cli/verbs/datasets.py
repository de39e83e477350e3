"""The verb ``datasets``."""

from dataclasses import dataclass
from typing import Any

from nscaching.cli.tables import print_json, print_table, say
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

        world = KnowledgeGraph.load(WORLD)
        rows: dict[str, dict[str, Any]] = {
            "world": {
                "title": "countries, embedded",
                "entities": len(world.entities),
                "relations": len(world.relations),
                **{split: len(world.split(split)) for split in SPLITS},
                "here": True,
            }
        }
        columns = ("entities", "relations", *SPLITS)
        for name, known in datasets.KNOWN.items():
            rows[name] = {field: getattr(known, field) for field in ("title", *columns)}
            rows[name]["here"] = datasets.is_cached(name)
        if self.json:
            print_json(rows)
            return
        cells = [
            [name, *(f"{row[c]:,}" for c in columns), "yes" if row["here"] else "on first use"]
            for name, row in rows.items()
        ]
        print_table(["name", *columns, "here"], cells)
        say(f"Data sets are kept in {datasets.cache_home()} (NSCACHING_HOME changes that).")
