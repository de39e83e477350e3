"""Triples that Python code passes → ids: rows, arrays, and data frames by their columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

from nscaching.data.index import Ids, Longs
from nscaching.data.readers.name_table import NameTable
from nscaching.data.readers.table import HEADERS
from nscaching.errors import UserError, unknown

Column = Longs | list[str]  # numbers, or names
Passed = Any  # whatever Python code passes

PARTS = ("head", "relation", "tail")
PLACES = {name: place for header in HEADERS for place, name in enumerate(header)}
MISSING_TYPES = ("NAType", "NaTType")  # of pandas; a missing number is NaN


def read_columns(
    triples: Passed, what: str = "triples", columns: Sequence[Any] | None = None
) -> list[Column]:
    """Return the columns (head, relation, tail) of rows, an array [n, 3] or a data frame.

    A data frame is whatever gives columns by name: of pandas, polars or pyarrow, a dict, or rows
    that are dicts. Errors begin with ``what``.
    """
    if type(triples).__name__ == "LazyFrame":  # of polars
        triples = triples.collect()
    if _is_rows(triples):
        triples = list(triples)
        if triples and all(isinstance(row, Mapping) for row in triples):
            triples = {name: [row.get(name) for row in triples] for name in triples[0]}
    if isinstance(triples, Mapping):
        named: Sequence[Any] | None = list(triples)
    else:  # a pyarrow table's ``columns`` are not the names
        named = getattr(triples, "column_names", getattr(triples, "columns", None))
    if named is not None:
        chosen = _choose_columns(list(named), what, columns)
        values = [triples[name] for name in chosen]
    elif columns is not None:
        raise UserError(f"{what}: columns names the columns of a data frame; this is none")
    else:
        values = _columns_of_rows(triples, what)
    found = [read_column(*each, what) for each in zip(values, PARTS, strict=True)]
    if len({len(column) for column in found}) > 1:
        raise UserError(f"{what}: its columns are not equally long")
    return found


def _choose_columns(named: list[Any], what: str, columns: Sequence[Any] | None) -> list[Any]:
    """Return which columns hold head, relation and tail."""
    has = f"its columns are {', '.join(map(str, named)) or 'none'}"
    if columns is not None:
        lacking = [name for name in columns if name not in named]
        if len(columns) != 3 or lacking:
            asked = f"columns={list(columns)!r}"
            raise UserError(f"{what}: {asked} must name three of its columns; {has}")
        chosen = list(columns)
    else:
        folded = {str(name).strip().casefold(): name for name in named}
        headers = [header for header in sorted(HEADERS) if set(header) <= set(folded)]
        # Three columns in another order than their names say would make wrong facts.
        in_order = len(named) == 3 and all(
            PLACES.get(text, place) == place for place, text in enumerate(folded)
        )
        if len(headers) != 1 and not in_order:
            known = "head, relation, tail, or three columns in this order"
            raise UserError(f"{what}: {has}; expected {known}, or say columns=[…]")
        chosen = [folded[part] for part in headers[0]] if len(headers) == 1 else named
    if any(named.count(name) > 1 for name in chosen):
        raise UserError(f"{what}: two columns have the same name; {has}")
    return chosen


def _columns_of_rows(triples: Passed, what: str) -> list[Any]:
    if hasattr(triples, "__array__"):
        array = np.asarray(triples)
        if array.ndim != 2 or array.shape[1] != 3:
            raise UserError(f"{what}: expected an array of shape [n, 3], not {list(array.shape)}")
        return list(array.T)
    if not isinstance(triples, list):
        kinds = "rows of (head, relation, tail), an array [n, 3] or a data frame"
        raise UserError(f"{what}: expected {kinds}, not {type(triples).__name__}")
    rows = [tuple(row) if _is_row(row) else (row,) for row in triples]
    for place, row in enumerate(rows):
        if len(row) != 3:
            expected = "expected (head, relation, tail)"
            raise UserError(f"{what}: row {place} (counted from 0): {expected}, not {row!r}")
    return [list(column) for column in zip(*rows, strict=True)] or [[], [], []]


def _is_rows(triples: Passed) -> bool:
    """Say whether rows come one by one: neither as an array nor by columns."""
    by_columns = isinstance(triples, str | Mapping) or hasattr(triples, "columns")
    return not by_columns and not hasattr(triples, "__array__") and isinstance(triples, Iterable)


def _is_row(row: Passed) -> bool:
    return isinstance(row, Iterable) and not isinstance(row, str | Mapping)


def read_column(values: Passed, part: str, what: str) -> Column:
    """Return whole numbers as an array, anything else as names; refuse what is neither."""
    if not isinstance(values, list):
        values = np.asarray(values)
        if values.ndim != 1:
            raise UserError(f"{what}: its {part} column has the shape {list(values.shape)}")
        if values.dtype.kind == "i":
            return cast(Longs, values.astype(np.int64))
        values = values.tolist()
    kinds = set(map(type, values))
    plain = kinds <= {int} or (kinds <= {str} and all(values))
    if not plain:
        for problem_of in (_missing, _wrong):  # missing ones first: they turn numbers into floats
            for place, value in enumerate(values):
                if problem := problem_of(value):
                    where = f"{what}: row {place} (counted from 0): its {part}"
                    raise UserError(f"{where} {problem}")
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        with suppress(OverflowError):  # larger numbers are names like others
            return np.array(values, dtype=np.int64)
    return list(map(str, values))


def _missing(value: Passed) -> str:
    missing = value is None or type(value).__name__ in MISSING_TYPES
    if missing or (isinstance(value, float) and math.isnan(value)):
        return "is missing; leave such rows out (in pandas: dropna())"
    return ""


def _wrong(value: Passed) -> str:
    if isinstance(value, str):
        return "" if value else "is an empty name"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return ""
    return f"must be a name or a whole number, not {value!r}"


def number_splits(
    splits: Mapping[str, list[Column]],
    entities: Sequence[Any] | None,
    relations: Sequence[Any] | None,
) -> tuple[list[str], list[str], dict[str, Ids]]:
    """Return the names of entities and of relations, and the ids [n, 3] of each split.

    Without given names, names are numbered as they first occur, and numbers in ascending order: a
    graph of the numbers 0 … n − 1 keeps them.
    """
    sizes = {split: len(columns[0]) for split, columns in splits.items()}
    ends = [columns[part] for columns in splits.values() for part in (0, 2)]
    middles = [columns[1] for columns in splits.values()]
    entity_names, of_ends = _number(ends, "entity", entities)
    relation_names, of_middles = _number(middles, "relation", relations)
    ids = {}
    for place, (split, size) in enumerate(sizes.items()):
        ids[split] = np.empty((size, 3), dtype=np.int32)
        ids[split][:, ::2] = np.stack(of_ends[2 * place : 2 * place + 2], axis=1)
        ids[split][:, 1] = of_middles[place]
    return entity_names, relation_names, ids


def _number(
    columns: list[Column], kind: str, given: Sequence[Any] | None
) -> tuple[list[str], list[Longs]]:
    if given is not None:
        names = list(map(str, given))
        return names, [_among(column, kind, names) for column in columns]
    if all(isinstance(column, np.ndarray) for column in columns):
        numbers, place = np.unique(np.concatenate(columns), return_inverse=True)
        sizes = np.cumsum([len(column) for column in columns])[:-1]
        return list(map(str, numbers.tolist())), np.split(place, sizes)
    table = NameTable()
    texts = [_texts(column) for column in columns]
    if kind == "entity":  # heads and tails in turn, as in the rows
        for heads, tails in zip(texts[::2], texts[1::2], strict=True):
            for head, tail in zip(heads, tails, strict=True):
                table[head], table[tail]
    found = [np.fromiter(map(table.__getitem__, some), np.int64, len(some)) for some in texts]
    return list(table), found


def _texts(column: Column) -> list[str]:
    return list(map(str, column.tolist())) if isinstance(column, np.ndarray) else column


def _among(column: Column, kind: str, names: list[str]) -> Longs:
    """Return the places of a column's values in given names; a number is a place."""
    if isinstance(column, np.ndarray):
        wrong = column[(column < 0) | (column >= len(names))]
        if len(wrong):
            raise UserError(f"{kind} {wrong[0]} is out of range: {len(names):,} names are given")
        return column
    places = {name: place for place, name in enumerate(names)}
    if lacking := next((name for name in column if name not in places), None):
        raise unknown(kind, lacking, names)
    return np.fromiter(map(places.__getitem__, column), np.int64, len(column))
