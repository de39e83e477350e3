"""The configuration file of a run: the data, all settings, and a record of the run."""

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import torch

from nscaching import __version__
from nscaching.config import TrainConfig, check_type, read_toml, write_toml
from nscaching.data.graph import KnowledgeGraph, Source
from nscaching.errors import UserError
from nscaching.files import replacing
from nscaching.probes import ProbeConfig

CONFIG = "config.toml"

FORMAT = 1
"""Format of run folders, in the table ``record`` of their configuration; absent in the oldest."""


def write_config(
    path: Path,
    graph: KnowledgeGraph,
    config: TrainConfig,
    record: dict[str, Any],
    probes: ProbeConfig | None,
) -> None:
    values = dataclasses.asdict(graph.source) | config.to_dict()
    if probes is not None and probes.on:
        values["probes"] = probes.to_dict()
    values["record"] = full_record(graph, record)
    with replacing(path) as partial:
        write_toml(partial, values)


def full_record(graph: KnowledgeGraph, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with versions and data, unless the record has them from an earlier run."""
    written = {"nscaching": __version__, "torch": torch.__version__}
    return written | {"format": FORMAT, "data_fingerprint": graph.fingerprint} | record


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of the run that wrote a configuration file; empty if no run did."""
    return _table(path, "record")


def read_probes(path: Path) -> ProbeConfig:
    where = f"{path}: probes"
    return ProbeConfig.from_dict(_as_keys(where, _table(path, "probes")), where)


def _table(path: Path, name: str) -> dict[str, Any]:
    """Read a table of a configuration file; empty if the file has none."""
    table = read_toml(path).get(name, {})
    if not isinstance(table, dict):
        raise UserError(f"{path}: {name} must be a table, not {table!r}")
    return table


def read_settings(path: Path) -> tuple[Source, TrainConfig]:
    """Read a configuration file: where the data are, and every hyperparameter."""
    values = _as_keys(str(path), read_toml(path))
    for table in ("record", "probes"):
        values.pop(table, None)
    origin = {
        key: check_type(f"{path}: {key}", hint, values.pop(key))
        for key, hint in get_type_hints(Source).items()
        if key in values
    }
    return Source(**origin), TrainConfig.from_dict(values, str(path))


def _as_keys(where: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with keys spelled as fields (batch_size), not as flags (batch-size)."""
    for key in values:
        if "-" in key and key.replace("-", "_") in values:
            raise UserError(f"{where}: {key} is given twice")
    return {key.replace("-", "_"): value for key, value in values.items()}
