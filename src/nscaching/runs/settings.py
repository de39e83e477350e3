"""What a run was trained with, as files of its folder: the settings, the names, the triples."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from nscaching import __version__
from nscaching.config import TrainConfig, check_type, read_toml, write_toml
from nscaching.data.checks import in_range
from nscaching.data.graph import SPLITS, KnowledgeGraph, Labelled, Source
from nscaching.data.index import Ids
from nscaching.data.mapped_names import MappedNames
from nscaching.data.names import refuse_repeats
from nscaching.errors import UserError, reading
from nscaching.files import map_arrays, read_text, replacing, save_tensors
from nscaching.probes import ProbeConfig

CONFIG, VOCABULARY, TRIPLES = "config.toml", "vocabulary.json", "triples.safetensors"
ENTITIES = "entities.safetensors"  # of a graph with mapped names, which VOCABULARY then lacks
NAMES = {"name": str, "entities": list, "relations": list, "labels": dict, "notes": list}
NAMES |= {"prefixes": dict}  # which the oldest run folders lack
NAME_ARRAYS = {"text": np.uint8, "ends": np.int64, "order": np.int32}

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
    import torch

    written = {"nscaching": __version__, "torch": torch.__version__}
    return written | {"format": FORMAT, "data_fingerprint": graph.fingerprint} | record


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of the run that wrote a configuration file; empty if no run did."""
    return _table(path, "record")


def read_probes(path: Path) -> ProbeConfig:
    where = f"{path}: probes"
    return ProbeConfig.from_dict(_as_keys(where, _table(path, "probes")), where)


def _table(path: Path, name: str) -> dict[str, Any]:
    table = read_toml(path).get(name, {})
    if not isinstance(table, dict):
        raise UserError(f"{path}: {name} must be a table, not {table!r}")
    return table


def read_settings(path: Path) -> tuple[Source, TrainConfig]:
    source, values = read_values(path)
    return source, TrainConfig.from_dict(values, str(path))


def read_values(path: Path) -> tuple[Source, dict[str, Any]]:
    """Return the data of a configuration file, and the settings that it names, unchecked."""
    values = _as_keys(str(path), read_toml(path))
    for table in ("record", "probes"):
        values.pop(table, None)
    origin = {
        key: check_type(f"{path}: {key}", hint, values.pop(key))
        for key, hint in get_type_hints(Source).items()
        if key in values
    }
    return Source(**origin), values


def _as_keys(where: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with keys spelled as fields (batch_size), not as flags (batch-size)."""
    for key in values:
        if "-" in key and key.replace("-", "_") in values:
            raise UserError(f"{where}: {key} is given twice")
    return {key.replace("-", "_"): value for key, value in values.items()}


def read_graph(folder: Path, source: Source) -> KnowledgeGraph:
    vocabulary = folder / VOCABULARY
    with reading(vocabulary):
        names = json.loads(read_text(vocabulary))
    if isinstance(names, dict):
        names.setdefault("prefixes", {})
    if not _is_vocabulary(names):
        raise UserError(f"{vocabulary}: not the vocabulary of a run")
    if (folder / ENTITIES).exists():
        names["entities"] = _map_names(folder / ENTITIES)
    refuse_repeats(names["entities"], names["relations"], f"{vocabulary}: ")
    entities, relations = len(names["entities"]), len(names["relations"])
    arrays, origins = map_arrays(folder / TRIPLES)

    def rows(name: str, *bounds: int) -> Ids:
        array = arrays.get(name, np.empty(0))
        if (
            array.dtype != np.int32
            or array.shape[1:] != (len(bounds),)
            or not in_range(array, *bounds)
        ):
            raise UserError(f"{folder / TRIPLES}: its {name} triples do not fit the names")
        return np.array(array)  # the file may change

    columns = entities, relations, entities
    splits: dict[str, Any] = {split: rows(split, *columns) for split in SPLITS}
    labelled = {
        split: Labelled(found[:, :3], found[:, 3] == 1, origins.get(split, TRIPLES))
        for split in SPLITS
        if f"{split}_labelled" in arrays
        for found in [rows(f"{split}_labelled", *columns, 2)]
    }
    return KnowledgeGraph(**names, **splits, source=source, labelled=labelled)


def _map_names(path: Path) -> MappedNames:
    arrays, _ = map_arrays(path)
    found = [arrays.get(name, np.empty(0)) for name in NAME_ARRAYS]
    names = MappedNames(*found)
    types = all(a.dtype == t for a, t in zip(found, NAME_ARRAYS.values(), strict=True))
    if not (types and all(array.ndim == 1 for array in found) and names.fits()):
        raise UserError(f"{path}: not the names of a run")
    return names


def write_graph(folder: Path, graph: KnowledgeGraph) -> None:
    import torch

    names = {name: getattr(graph, name) for name in NAMES}
    if isinstance(graph.entities, MappedNames):
        names["entities"] = []
        arrays = {name: getattr(graph.entities, name) for name in NAME_ARRAYS}
        save_tensors(folder / ENTITIES, {n: torch.from_numpy(_own(a)) for n, a in arrays.items()})
    text = json.dumps(names, ensure_ascii=False, indent=0)
    (folder / VOCABULARY).write_text(text, encoding="utf-8")
    tensors = {split: torch.from_numpy(_own(graph.split(split))) for split in SPLITS}
    for split, labelled in graph.labelled.items():
        rows = np.column_stack([labelled.triples, labelled.truth]).astype(np.int32)
        tensors[f"{split}_labelled"] = torch.from_numpy(rows)
    origins = {split: part.origin for split, part in graph.labelled.items()}
    save_tensors(folder / TRIPLES, tensors, origins)


def _own(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as PyTorch takes it, copied only if it must be: it may be large."""
    return np.require(array, requirements=["C", "W"])


def _is_vocabulary(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, dict) or value.keys() != NAMES.keys():
        return False
    if not all(isinstance(value[name], kind) for name, kind in NAMES.items()):
        return False
    texts = [*value["entities"], *value["relations"], *value["notes"]]
    for named in (value["labels"], value["prefixes"]):
        texts += [*named, *named.values()]
    try:
        "".join([value["name"], *texts]).encode()
    except (TypeError, UnicodeEncodeError):  # not texts, or lone surrogates, which JSON may hold
        return False
    return True
