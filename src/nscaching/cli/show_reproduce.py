"""Presets and the paper's tables on standard output."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from nscaching.cli.tables import note, print_json, print_table, say
from nscaching.config import TrainConfig, flag
from nscaching.paper import presets as known_presets

if TYPE_CHECKING:
    from nscaching.paper.reproduce.loop import Outcome

__all__ = ["note", "outcome", "presets"]


def presets(as_json: bool) -> None:
    """List the presets with the settings that are not the defaults."""
    rows: dict[str, dict[str, Any]] = {}
    for name in known_presets.names():
        for variant in known_presets.VARIANTS:
            data, config = known_presets.load(name, variant)
            rows.setdefault(name, {"data": data, "model": config.model})
            rows[name][variant] = _changed(config)
    if as_json:
        print_json(rows)
        return
    print_table(
        ["name", *known_presets.VARIANTS],
        [[name, *(_flags(row[v]) for v in known_presets.VARIANTS)] for name, row in rows.items()],
    )
    say("nscaching train --preset NAME takes the first column's settings, NAME:paper the second's.")


def _changed(config: TrainConfig) -> dict[str, Any]:
    values = {f.name: (getattr(config, f.name), f.default) for f in dataclasses.fields(config)}
    return {
        name: value
        for name, (value, default) in values.items()
        if value != default and name != "model"
    }


def _flags(settings: dict[str, Any]) -> str:
    return " ".join(f"{flag(name)} {value}" for name, value in settings.items())


def outcome(made: Outcome, as_json: bool) -> None:
    """Show the rows that there are, and how they stand."""
    if as_json:
        print_json(
            {
                "task": made.task.name,
                "rows": [row.to_dict() for row in made.rows],
                "summaries": [dataclasses.asdict(summary) for summary in made.summaries],
                "left_out": made.left_out,
                "trained": made.trained,
                "left": made.left,
                "failed": made.failed,
                "results": [str(path) for path in made.sources or [made.lines]],
                "table": str(made.table),
            }
        )
        return
    from nscaching.paper.reproduce.markdown import left_out, mean, number, signed
    from nscaching.paper.reproduce.tables import PROTOCOLS

    first = made.task.measures[0].heading
    rows = []
    for row in made.rows:
        figure = row.figures[0]
        name = f"{row.data} {row.model} {row.sampler} {row.start}".strip()
        rows.append(
            [
                name,
                PROTOCOLS.get(row.protocol, row.protocol),
                mean(figure),
                number(figure, figure.paper),
                signed(figure),
                row.verdict,
                f"{row.seconds:,.1f}",
                str(len(row.seeds)),
            ]
        )
    headings = ["cell", "settings", first, "paper", "difference", "verdict", "seconds", "seeds"]
    print_table(headings, rows, made.task.title)
    if short := sum(row.short > 0 for row in made.rows):
        say(f"{short} rows are of fewer epochs than the paper's; {made.table.name} says which")
    for text in left_out(made.left_out):
        say(text)
    for summary in made.summaries:
        say(str(summary))
    left = f"; left for the next time: {made.left} of the trainings" if made.left else ""
    results = ", ".join(map(str, made.sources or [made.lines]))
    say(f"table: {made.table}", f"results: {results}{left}")
