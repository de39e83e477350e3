"""The files of a run. They are written as training goes on, each one whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

from nscaching import __version__, evaluation
from nscaching.config import TrainConfig, check_type, read_toml, write_toml
from nscaching.errors import UserError, user_path
from nscaching.files import (
    PARTIAL,
    own,
    parse_json,
    read_lines,
    read_tensors,
    read_text,
    save_tensors,
)
from nscaching.graph import SPLITS, Ids, KnowledgeGraph, Labelled, Source
from nscaching.probes import ProbeConfig
from nscaching.probes.files import SCORES, is_snapshots, remove_snapshots

__all__ = [
    "CARD",
    "CONFIG",
    "MODEL",
    "PARTIAL",
    "PLOT",
    "REPORT",
    "RunFolder",
    "default_out",
    "free_path",
    "read_probes",
    "read_record",
    "read_settings",
]

CONFIG, METRICS, VOCABULARY = "config.toml", "metrics.jsonl", "vocabulary.json"
MODEL, CACHE, TRIPLES = "model.safetensors", "cache.safetensors", "triples.safetensors"
CARD, PLOT, REPORT = "README.md", "training.png", "report.html"
NAMES = {"name": str, "entities": list, "relations": list, "labels": dict, "notes": list}
FILES = {CONFIG, METRICS, SCORES, VOCABULARY, MODEL, CACHE, TRIPLES, CARD, PLOT, REPORT}

# What a line of metrics.jsonl has at least: an epoch, or the ranking of a split.
EPOCH_FIGURES = ("epoch", "loss", "seconds")
RANKING_FIGURES = ("epoch", *evaluation.METRICS, "trained_seconds", "seconds")


class RunFolder:
    """One run's folder on disk; it holds the data too, so that it stands on its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = self.target = user_path(path)

    def check_free(self, overwrite: bool) -> None:
        """Refuse a path that exists, unless it is a run folder that may be overwritten."""
        if not self.path.exists() and not self.path.is_symlink():
            return
        if not overwrite:
            raise UserError(f"{self.path} exists already; choose another --out, or say --overwrite")
        made = all((self.path / name).is_file() for name in (CONFIG, VOCABULARY))
        if self.path.is_symlink() or not made:
            raise UserError(f"{self.path} is not a run folder, so it is not overwritten")
        for file in self.path.iterdir():
            if file.name.removesuffix(PARTIAL) not in FILES and not is_snapshots(file):
                what = f"it holds {file.name}, which is no file of a run"
                raise UserError(f"{self.path} is not overwritten: {what}")

    def create(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        overwrite: bool = False,
        record: dict[str, Any] | None = None,
        probes: ProbeConfig | None = None,
    ) -> None:
        """Make the folder with configuration and data; replace an existing run only if told to.

        A run that is to be replaced stays as it is until ``finish``: the new one is written beside
        it. ``record`` holds what else is worth knowing of the run.
        """
        self.check_free(overwrite)
        if self.target.exists():
            self.path = free_path(self.target.with_name(self.target.name + PARTIAL))
        try:
            self.path.mkdir(parents=True)
            self._write_config(graph, config, record or {}, probes)
            self._write_graph(graph)
            (self.path / METRICS).touch()
        except (OSError, UnicodeError) as error:  # UnicodeError: a path that is not UTF-8
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path}: cannot write the run folder: {reason}") from error

    def finish(self) -> None:
        """Put a run that was written beside an old one into its place."""
        if self.path != self.target:
            for file in self.target.iterdir():  # none but a run's own, as was checked
                (remove_snapshots if is_snapshots(file) else Path.unlink)(file)
            self.target.rmdir()
            self.path = self.path.rename(self.target)

    def discard(self) -> None:
        """Give up a run that was to replace an old one."""
        if self.path != self.target:
            shutil.rmtree(self.path, ignore_errors=True)

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with own(self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save_model(self, parameters: dict[str, Tensor], epoch: int) -> None:
        """Write the parameters of an epoch."""
        save_tensors(self.path / MODEL, parameters, {"epoch": str(epoch)})

    def save_sampler(self, state: dict[str, Tensor]) -> None:
        """Write what the sampler keeps, if it keeps anything."""
        if state:
            save_tensors(self.path / CACHE, state)

    def read_config(self) -> tuple[Source, TrainConfig]:
        """Read the configuration."""
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} is not a run folder: it has no {CONFIG}")
        return read_settings(own(self.path / CONFIG))

    def read_history(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl."""
        return read_lines(self.path / METRICS, _is_record, "metrics")

    def read_model(self) -> tuple[dict[str, Tensor], int]:
        """Read the parameters and the epoch they are of."""
        if not (self.path / MODEL).is_file():
            raise UserError(f"{self.path} holds no model: its training did not get that far")
        tensors, metadata = read_tensors(self.path / MODEL)
        epoch = metadata.get("epoch", "")
        if not (epoch.isascii() and epoch.isdigit() and len(epoch) < 19):
            raise UserError(f"{self.path / MODEL}: does not say of which epoch it is")
        return tensors, int(epoch)

    def read_sampler(self) -> dict[str, Tensor]:
        """Read what the sampler kept."""
        return read_tensors(self.path / CACHE)[0] if (self.path / CACHE).is_file() else {}

    def read_graph(self, source: Source) -> KnowledgeGraph:
        """Read names and triples."""
        names = parse_json(f"{self.path / VOCABULARY}", read_text(self.path / VOCABULARY))
        if not _is_vocabulary(names):
            raise UserError(f"{self.path / VOCABULARY}: not the vocabulary of a run")
        entities, relations = len(names["entities"]), len(names["relations"])
        tensors, origins = read_tensors(self.path / TRIPLES)

        def rows(name: str, *bounds: int) -> Ids:
            tensor = tensors.get(name, torch.empty(0))
            if (
                tensor.dtype != torch.int32
                or tensor.shape[1:] != (len(bounds),)
                or not ((tensor >= 0) & (tensor < torch.tensor(bounds))).all()
            ):
                raise UserError(f"{self.path / TRIPLES}: its {name} triples do not fit the names")
            return tensor.numpy()

        columns = entities, relations, entities
        splits: dict[str, Any] = {split: rows(split, *columns) for split in SPLITS}
        labelled = {
            split: Labelled(found[:, :3], found[:, 3] == 1, origins.get(split, TRIPLES))
            for split in SPLITS
            if f"{split}_labelled" in tensors
            for found in [rows(f"{split}_labelled", *columns, 2)]
        }
        return KnowledgeGraph(**names, **splits, source=source, labelled=labelled)

    def _write_config(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        record: dict[str, Any],
        probes: ProbeConfig | None,
    ) -> None:
        values = dataclasses.asdict(graph.source) | config.to_dict()
        if probes is not None and probes.on:
            values["probes"] = probes.to_dict()
        written = {"nscaching": __version__, "torch": torch.__version__}
        values["record"] = written | {"data_fingerprint": graph.fingerprint} | record
        write_toml(self.path / CONFIG, values)

    def _write_graph(self, graph: KnowledgeGraph) -> None:
        names = {name: getattr(graph, name) for name in NAMES}
        text = json.dumps(names, ensure_ascii=False, indent=0)
        (self.path / VOCABULARY).write_text(text, encoding="utf-8")
        tensors = {split: torch.from_numpy(graph.split(split).copy()) for split in SPLITS}
        for split, labelled in graph.labelled.items():
            rows = np.column_stack([labelled.triples, labelled.truth]).astype(np.int32)
            tensors[f"{split}_labelled"] = torch.from_numpy(rows)
        origins = {split: part.origin for split, part in graph.labelled.items()}
        save_tensors(self.path / TRIPLES, tensors, origins)


def free_path(path: Path) -> Path:
    """Return the path, or with a number behind its name the first that does not exist."""
    number, free = 1, path
    while free.exists() or free.is_symlink():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def default_out(graph: KnowledgeGraph, config: TrainConfig) -> Path:
    """Return a free folder for a run that was given none."""
    model, sampler = (name.rpartition(":")[2] for name in (config.model, config.sampler))
    name = re.sub(r"[^\w.+-]+", "_", f"{graph.name}-{model}-{sampler}-seed{config.seed}")
    return free_path(Path("runs") / name.lstrip(".").lower())


def read_record(path: Path) -> dict[str, Any]:
    """Read what a configuration file records of the run that wrote it, if one did."""
    record = read_toml(path).get("record", {})
    if not isinstance(record, dict):
        raise UserError(f"{path}: record must be a table, not {record!r}")
    return record


def read_probes(path: Path) -> ProbeConfig:
    """Read the table of probes of a configuration file, if it has one."""
    table = read_toml(path).get("probes", {})
    if not isinstance(table, dict):
        raise UserError(f"{path}: probes must be a table, not {table!r}")
    return ProbeConfig.from_dict(_as_keys(f"{path}: probes", table), f"{path}: probes")


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
    """Return the values with their keys as fields are written, not as flags."""
    for key in values:
        if "-" in key and key.replace("-", "_") in values:
            raise UserError(f"{where}: {key} is given twice")
    return {key.replace("-", "_"): value for key, value in values.items()}


def _is_record(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, dict):
        return False
    figures = RANKING_FIGURES if "split" in value else EPOCH_FIGURES
    return all(
        isinstance(value.get(name), int | float) and not abs(value[name]) > 1e300
        for name in figures
    )


def _is_vocabulary(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, dict) or value.keys() != NAMES.keys():
        return False
    if not all(isinstance(value[name], kind) for name, kind in NAMES.items()):
        return False
    labels = value["labels"]
    texts = [*value["entities"], *value["relations"], *labels, *labels.values(), *value["notes"]]
    return all(isinstance(text, str) and _is_unicode(text) for text in [value["name"], *texts])


def _is_unicode(text: str) -> bool:
    """Say whether a text can be written: JSON may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
