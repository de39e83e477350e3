"""The files of a run. They are written as training goes on, each one whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching import __version__
from nscaching.config import TrainConfig, read_toml, write_toml
from nscaching.errors import UserError
from nscaching.graph import SPLITS, KnowledgeGraph, Labelled, Source

__all__ = ["CARD", "CONFIG", "PLOT", "RunFolder", "read_settings"]

CONFIG, METRICS, VOCABULARY = "config.toml", "metrics.jsonl", "vocabulary.json"
MODEL, CACHE, TRIPLES = "model.safetensors", "cache.safetensors", "triples.safetensors"
CARD, PLOT = "README.md", "training.png"


class RunFolder:
    """One run's folder on disk; it holds the data too, so that it stands on its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    def check_free(self, overwrite: bool) -> None:
        """Refuse a path that exists, unless it is a run folder that may be overwritten."""
        if not self.path.exists() and not self.path.is_symlink():
            return
        if not overwrite:
            raise UserError(f"{self.path} exists already; choose another --out, or say --overwrite")
        if self.path.is_symlink() or not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} is not a run folder, so it is not overwritten")

    def create(self, graph: KnowledgeGraph, config: TrainConfig, overwrite: bool = False) -> None:
        """Make the folder with configuration and data; replace an existing run only if told to."""
        self.check_free(overwrite)
        try:
            if self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True)
            self._write_config(graph, config)
            self._write_graph(graph)
            (self.path / METRICS).touch()
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot write the run folder: {error.strerror}"
            ) from error

    def append(self, record: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save_model(self, parameters: dict[str, Tensor], epoch: int) -> None:
        """Write the parameters of an epoch."""
        self._save(MODEL, parameters, {"epoch": str(epoch)})

    def save_sampler(self, state: dict[str, Tensor]) -> None:
        """Write what the sampler keeps, if it keeps anything."""
        if state:
            self._save(CACHE, state)

    def read_config(self) -> tuple[Source, TrainConfig]:
        """Read the configuration."""
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path} is not a run folder: it has no {CONFIG}")
        return read_settings(self.path / CONFIG)

    def read_history(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl."""
        try:
            lines = (self.path / METRICS).read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / METRICS}: cannot read it: {error}") from error

    def read_model(self) -> tuple[dict[str, Tensor], int]:
        """Read the parameters and the epoch they are of."""
        if not (self.path / MODEL).is_file():
            raise UserError(f"{self.path} holds no model: its training did not get that far")
        tensors, metadata = self._load(MODEL)
        return tensors, int(metadata.get("epoch", "0"))

    def read_sampler(self) -> dict[str, Tensor]:
        """Read what the sampler kept."""
        return self._load(CACHE)[0] if (self.path / CACHE).is_file() else {}

    def read_graph(self, source: Source) -> KnowledgeGraph:
        """Read names and triples."""
        try:
            names = json.loads((self.path / VOCABULARY).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / VOCABULARY}: cannot read it: {error}") from error
        tensors, origins = self._load(TRIPLES)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        labelled = {
            split: Labelled(rows[:, :3], rows[:, 3] == 1, origins[split])
            for split in SPLITS
            if (rows := arrays.get(f"{split}_labelled")) is not None
        }
        parts: dict[str, Any] = {**names, **{split: arrays[split] for split in SPLITS}}
        return KnowledgeGraph(**parts, source=source, labelled=labelled)

    def _write_config(self, graph: KnowledgeGraph, config: TrainConfig) -> None:
        values = dataclasses.asdict(graph.source) | config.to_dict()
        values["record"] = {
            "nscaching": __version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "data_fingerprint": graph.fingerprint,
        }
        write_toml(self.path / CONFIG, values)

    def _write_graph(self, graph: KnowledgeGraph) -> None:
        fields = ("name", "entities", "relations", "labels")
        names = {name: getattr(graph, name) for name in fields}
        text = json.dumps(names, ensure_ascii=False, indent=0)
        (self.path / VOCABULARY).write_text(text, encoding="utf-8")
        tensors = {split: torch.from_numpy(graph.split(split).copy()) for split in SPLITS}
        for split, labelled in graph.labelled.items():
            rows = np.column_stack([labelled.triples, labelled.truth]).astype(np.int32)
            tensors[f"{split}_labelled"] = torch.from_numpy(rows)
        self._save(TRIPLES, tensors, {split: part.origin for split, part in graph.labelled.items()})

    def _save(
        self, name: str, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
    ) -> None:
        from safetensors.torch import save_file

        unfinished = self.path / f"{name}.partial"
        whole = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        save_file(whole, unfinished, metadata)
        os.replace(unfinished, self.path / name)  # noqa: PTH105  (the name says that it replaces)

    def _load(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path / name, framework="pt") as file:
                names = list(file.keys())
                return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
        except (OSError, SafetensorError) as error:
            raise UserError(f"{self.path / name}: cannot read it: {error}") from error


def read_settings(path: Path) -> tuple[Source, TrainConfig]:
    """Read a configuration file: where the data are, and every hyperparameter."""
    values = read_toml(path)
    values.pop("record", None)
    origin = {
        field.name: values.pop(field.name)
        for field in dataclasses.fields(Source)
        if field.name in values
    }
    return Source(**origin), TrainConfig.from_dict(values, str(path))
