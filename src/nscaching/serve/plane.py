"""A map of the vectors in two dimensions: made once, kept in the run folder."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Longs
from nscaching.errors import UserError
from nscaching.files import map_arrays, replacing
from nscaching.runs.folder import MAP

Rows = npt.NDArray[Any]

SAMPLE = 20_000  # vectors by which the main axes are found
BLOCK = 65_536  # rows that are projected at once
SLOW_MOST = 20_000  # entities, up to which the better methods take minutes at most
BEFORE = 50  # main axes that are left for a better method: the others are noise, and cost time
COLOURS = 7  # types with a colour of their own
TYPE_RELATIONS = {"type", "isa", "is_a", "is a", "instanceof", "instance_of", "instance of", "p31"}
TYPED = 0.3  # share of entities with such a relation, from which it says the types


@dataclass(frozen=True, eq=False)
class Plane:
    """Places [n, 2] of the entities, nearly all between −1 and 1, and by which method."""

    places: npt.NDArray[np.float32]
    method: str


def pca(vectors: Rows, axes: int = 2) -> Rows:
    """Project vectors [n, D] on their main axes → [n, axes]; equal vectors give equal places."""
    step = max(1, len(vectors) // SAMPLE)
    some = vectors[::step].astype(np.float64)
    mean = some.mean(0)
    _, found = np.linalg.eigh((some - mean).T @ (some - mean))
    main = found[:, ::-1][:, :axes]
    main *= np.sign(main[np.abs(main).argmax(0), np.arange(main.shape[1])])  # one of two signs
    blocks = range(0, len(vectors), BLOCK)
    return np.concatenate([(vectors[b : b + BLOCK] - mean) @ main for b in blocks])


def _umap(vectors: Rows) -> Rows:
    import umap  # type: ignore[import-not-found]

    made = umap.UMAP(n_components=2, metric="cosine", random_state=0, low_memory=True)
    return np.asarray(made.fit_transform(vectors))


def _open_tsne(vectors: Rows) -> Rows:
    import openTSNE  # type: ignore[import-not-found]

    return np.asarray(openTSNE.TSNE(metric="cosine", random_state=0).fit(vectors))


def _tsne(vectors: Rows) -> Rows:
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]

    few = max(2.0, min(30.0, (len(vectors) - 1) / 3))
    return np.asarray(TSNE(perplexity=few, init="pca", random_state=0).fit_transform(vectors))


BETTER: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "umap": ("umap", _umap),
    "opentsne": ("openTSNE", _open_tsne),
    "tsne": ("sklearn", _tsne),
}
"""Method → the module that it needs, and its function."""


def methods(entities: int) -> list[str]:
    """Return the methods for so many entities that are there, PCA first."""
    found = [name for name, (module, _) in BETTER.items() if importlib.util.find_spec(module)]
    return ["pca", *(found if 4 <= entities <= SLOW_MOST else [])]


def make(vectors: Rows, method: str) -> Plane:
    if method == "pca":
        places = pca(vectors)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about their own insides
            lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            before = min(BEFORE, vectors.shape[1])
            places = BETTER[method][1](pca(vectors / lengths, before).astype(np.float32))
    if places.shape[1] < 2:  # vectors of one number
        places = np.pad(places, [(0, 0), (0, 2 - places.shape[1])])
    return Plane(_fitted(places), method)


def _fitted(places: Rows) -> npt.NDArray[np.float32]:
    """Move and scale places so that nearly all lie between −1 and 1."""
    if not len(places):
        return places.astype(np.float32)
    low, high = np.quantile(places, [0.005, 0.995], axis=0)
    size = float((high - low).max()) / 2
    fitted: npt.NDArray[np.float32] = ((places - (low + high) / 2) / (size or 1.0)).astype("f4")
    return fitted


def read(folder: Path | None, method: str, epoch: int, entities: int) -> Plane | None:
    """Read a map that was kept; None where there is none of these parameters."""
    path = None if folder is None else folder / MAP[method]
    if path is None or not path.is_file():
        return None
    try:
        arrays, about = map_arrays(path)
    except UserError:
        return None
    places = arrays.get("places", np.empty(0))
    fits = places.shape == (entities, 2) and places.dtype == np.float32
    if fits and np.isfinite(places).all() and about.get("epoch") == str(epoch):
        return Plane(places, method)
    return None


def keep(folder: Path | None, plane: Plane, epoch: int) -> None:
    """Write a map into the run folder, where that can be written."""
    if folder is not None:
        content = save({"places": np.ascontiguousarray(plane.places)}, {"epoch": str(epoch)})
        with suppress(UserError), replacing(folder / MAP[plane.method]) as partial:
            partial.write_bytes(content)  # a read-only folder is served too


def kinds(graph: KnowledgeGraph) -> tuple[list[str], Longs]:
    """Return names of types, the most frequent first, and the type of each entity [n].

    By a relation such as rdf:type if many entities have one; or else an entity is of the kind of
    its most frequent place, such as the tails of "speaks". The last type is that of all others.
    """
    said, of = _said_types(graph) or _places_of_relations(graph)
    links = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=len(of))
    # Of the most linked entities, which are drawn first, few should be among the others.
    count = np.bincount(of[of >= 0], np.sqrt(links[of >= 0]), minlength=len(said))
    order = np.argsort(-count, kind="stable")[:COLOURS]
    order = order[count[order] > 0]
    number = np.full(len(said) + 1, len(order))
    number[order] = np.arange(len(order))
    return [said[i] for i in order] + ["others"], number[of]  # −1 is the last: others


def _said_types(graph: KnowledgeGraph) -> tuple[list[str], Longs] | None:
    for relation, name in enumerate(graph.relations):
        local = name.replace("#", "/").replace(":", "/").rpartition("/")[2].casefold()
        rows = graph.train[graph.train[:, 1] == relation]
        if local in TYPE_RELATIONS and len(np.unique(rows[:, 0])) >= TYPED * len(graph.entities):
            classes, number = np.unique(rows[:, 2], return_inverse=True)
            largest = np.argsort(np.bincount(number)[number], kind="stable")  # the largest last
            of = np.full(len(graph.entities), -1)
            of[rows[largest, 0]] = number[largest]
            return [graph.label(int(entity)) for entity in classes], of
    return None


def _places_of_relations(graph: KnowledgeGraph) -> tuple[list[str], Longs]:
    count, train = len(graph.relations), graph.train.astype(np.int64)
    entity = np.concatenate([train[:, 0], train[:, 2]])
    place = np.concatenate([2 * train[:, 1], 2 * train[:, 1] + 1])
    codes, often = np.unique(entity * 2 * count + place, return_counts=True)
    owner, place = np.divmod(codes, 2 * count)
    order = np.argsort(often, kind="stable")  # the most frequent is written last
    of = np.full(len(graph.entities), -1)
    of[owner[order]] = place[order]
    labels = [graph.relation_label(relation) for relation in range(count)]
    return [f"{side} of {label}" for label in labels for side in ("heads", "tails")], of
