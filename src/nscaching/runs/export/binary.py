"""Arrays unchanged: safetensors, and NumPy's .npz. Nothing is pickled."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nscaching.files import write_tensors
from nscaching.runs.export._vectors import Progress, Vectors

Arrays = dict[str, npt.NDArray[Any]]
NAMES = ("entities", "labels", "relations")


def write_safetensors(vectors: Vectors, progress: Progress, path: Path) -> None:
    """Write tensors entity and relation; the names of each kind as UTF-8 bytes and their ends.

    The header could hold strings, but only 100 MB: not enough for millions of names.
    """
    arrays: Arrays = {"entity": vectors.entity, "relation": vectors.relation}
    for kind in NAMES:
        encoded = [name.encode() for name in getattr(vectors, kind)]
        arrays[kind] = np.array(bytearray(b"".join(encoded)), dtype=np.uint8)
        arrays[f"{kind}_end"] = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    write_tensors(path, tensors, {"format": "nscaching vectors"})
    progress(len(vectors), len(vectors))


def read_safetensors(path: Path) -> Vectors:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
    except SafetensorError as error:
        raise ValueError(error) from error
    names = {}
    for kind in NAMES:
        text, end = arrays[kind].tobytes(), arrays[f"{kind}_end"].tolist()
        names[kind] = [text[a:b].decode() for a, b in zip([0, *end], end, strict=False)]
    return Vectors(**names, entity=arrays["entity"], relation=arrays["relation"])


def write_npz(vectors: Vectors, progress: Progress, path: Path) -> None:
    """Write what np.savez would, array by array: texts, and rows of numbers.

    NumPy drops NUL at the end of a text, so the lengths of the names are stored too.
    """
    arrays: Arrays = {"entity": vectors.entity, "relation": vectors.relation}
    for kind in NAMES:
        names = getattr(vectors, kind)
        lengths = np.array([len(name) for name in names], dtype=np.int64)
        arrays[kind] = np.array(names, dtype=f"<U{max(1, lengths.max(initial=1))}")
        arrays[f"{kind}_length"] = lengths
    with zipfile.ZipFile(path, "w") as archive:
        for number, (key, array) in enumerate(arrays.items(), 1):
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
            progress(number, len(arrays))


def read_npz(path: Path) -> Vectors:
    try:
        # Opened here: NumPy leaves a file open that is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, EOFError, AttributeError) as error:  # or no archive at all
        raise ValueError(f"no NumPy archive: {error}") from error
    names = {}
    for kind in NAMES:
        pairs = zip(arrays[kind].tolist(), arrays[f"{kind}_length"].tolist(), strict=True)
        names[kind] = [name.ljust(length, "\0") for name, length in pairs]
    return Vectors(**names, entity=arrays["entity"], relation=arrays["relation"])
