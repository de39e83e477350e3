"""Names and triples in a run folder, which makes the folder independent of the data set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nscaching.data.graph import SPLITS, KnowledgeGraph, Labelled, Source
from nscaching.data.index import Ids
from nscaching.data.names import refuse_repeats
from nscaching.errors import UserError
from nscaching.files import parse_json, read_tensors, read_text, save_tensors

VOCABULARY, TRIPLES = "vocabulary.json", "triples.safetensors"
NAMES = {"name": str, "entities": list, "relations": list, "labels": dict, "notes": list}


def read_graph(folder: Path, source: Source) -> KnowledgeGraph:
    names = parse_json(f"{folder / VOCABULARY}", read_text(folder / VOCABULARY))
    if not _is_vocabulary(names):
        raise UserError(f"{folder / VOCABULARY}: not the vocabulary of a run")
    refuse_repeats(names["entities"], names["relations"], f"{folder / VOCABULARY}: ")
    entities, relations = len(names["entities"]), len(names["relations"])
    tensors, origins = read_tensors(folder / TRIPLES)

    def rows(name: str, *bounds: int) -> Ids:
        tensor = tensors.get(name, torch.empty(0))
        if (
            tensor.dtype != torch.int32
            or tensor.shape[1:] != (len(bounds),)
            or not ((tensor >= 0) & (tensor < torch.tensor(bounds))).all()
        ):
            raise UserError(f"{folder / TRIPLES}: its {name} triples do not fit the names")
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


def write_graph(folder: Path, graph: KnowledgeGraph) -> None:
    names = {name: getattr(graph, name) for name in NAMES}
    text = json.dumps(names, ensure_ascii=False, indent=0)
    (folder / VOCABULARY).write_text(text, encoding="utf-8")
    tensors = {split: torch.from_numpy(graph.split(split).copy()) for split in SPLITS}
    for split, labelled in graph.labelled.items():
        rows = np.column_stack([labelled.triples, labelled.truth]).astype(np.int32)
        tensors[f"{split}_labelled"] = torch.from_numpy(rows)
    origins = {split: part.origin for split, part in graph.labelled.items()}
    save_tensors(folder / TRIPLES, tensors, origins)


def _is_vocabulary(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, dict) or value.keys() != NAMES.keys():
        return False
    if not all(isinstance(value[name], kind) for name, kind in NAMES.items()):
        return False
    labels = value["labels"]
    texts = [*value["entities"], *value["relations"], *labels, *labels.values(), *value["notes"]]
    try:
        "".join([value["name"], *texts]).encode()
    except (TypeError, UnicodeEncodeError):  # not texts, or lone surrogates, which JSON may hold
        return False
    return True
