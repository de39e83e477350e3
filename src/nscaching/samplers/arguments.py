"""What the caller of a cache gives, checked: settings, training triples, ids."""

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nscaching.data.index import Ids
from nscaching.errors import UserError, unknown
from nscaching.samplers.draws import SideRule
from nscaching.settings import CacheSettings

Triples = Tensor | npt.NDArray[Any]
LongArray = Tensor | npt.NDArray[Any] | Sequence[int]


def check_settings(settings: CacheSettings, entities: int, side: str) -> None:
    choices = {**get_type_hints(CacheSettings), "side": SideRule}
    for name, value in {**vars(settings), "side": side}.items():
        if get_origin(choices[name]) is Literal and value not in get_args(choices[name]):
            raise unknown(name, str(value), get_args(choices[name]))
    if not 1 <= settings.n1 <= entities:
        raise UserError(f"n1 = {settings.n1} is not in 1 … {entities}, the number of entities")
    if settings.n2 < 1:
        raise UserError(f"n2 = {settings.n2}: a refresh needs at least one fresh candidate")
    if not 0 < settings.temperature < float("inf"):
        raise UserError(f"temperature = {settings.temperature} is not a positive number")


def as_triples(given: Triples, entities: int, relations: int) -> Ids:
    """Return triples as int32 [n, 3], or raise a UserError that names what is wrong."""
    array = given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        found = f"{array.dtype} {list(array.shape)}"
        raise UserError(f"triples must be whole numbers [n, 3], not {found}")
    if not len(array):
        raise UserError("triples are empty: a cache needs the training triples")
    bad = ((array < 0) | (array >= (entities, relations, entities))).any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        sizes = f"{entities:,} entities and {relations:,} relations"
        raise UserError(f"triple {row}, {array[row].tolist()}, is out of range of {sizes}")
    return array.astype(np.int32)


def as_ids(given: LongArray, device: torch.device) -> Tensor:
    """Return ids [B] as contiguous int64: kernels read them as plain memory."""
    ids = torch.as_tensor(given, device=device).reshape(-1)
    if ids.is_floating_point() and len(ids):
        raise UserError(f"ids must be whole numbers, not {ids.dtype}")
    return ids.long().contiguous()
