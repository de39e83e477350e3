"""Results as rows of CSV: a line for each row, figures with all their digits."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from nscaching.runs.escaping import visible

PARTS = {"by_side": "side", "by_class": "class", "by_relation": "relation"}


def print_csv(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows with a column for each key that some row has; a terminal obeys no name."""
    flat = [flattened(row) for row in rows]
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    if columns:
        writer.writeheader()
    writer.writerows(flat)
    printed = text.getvalue()
    if sys.stdout.isatty():
        printed = "".join(f"{visible(line)}\n" for line in printed.splitlines())
    sys.stdout.write(printed)


def flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without tables in it: the figures of ``{"test": {"mrr": 0.3}}`` are test_mrr."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{key}": each for key, each in flattened(value).items()}
        elif isinstance(value, list | tuple):
            plain = all(isinstance(each, str) for each in value)
            flat[name] = "; ".join(value) if plain else json.dumps(value, ensure_ascii=False)
        else:
            flat[name] = value
    return flat


def of_parts(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of all triples, then of each side, class and relation."""
    whole = {key: value for key, value in result.items() if not isinstance(value, Mapping)}
    rows = [{"part": "all", "name": ""} | whole]
    for key, part in PARTS.items():
        rows += [{"part": part, "name": name} | of for name, of in result.get(key, {}).items()]
    return rows
