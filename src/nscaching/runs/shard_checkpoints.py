"""Checkpoints of several processes: a folder for each, written by PyTorch's distributed checkpoint.

Rows of entities and of caches are stored block by block, so that another number of processes can
read what these have written.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from nscaching import files
from nscaching.errors import UserError, reading
from nscaching.kernels.state import State
from nscaching.runs.checkpoints import CHECKPOINTS, KEPT, SHARDED, sharded_in
from nscaching.sharded.tables import is_sharded

if TYPE_CHECKING:
    from nscaching.kernels.shards import Shards
    from nscaching.sharded.world import World

FORMAT = "1"
STATE, BEST, METADATA = "state.json", "best.safetensors", ".metadata"
NAME = re.compile(r"__\d+_\d+\.distcp|\.metadata|best\.safetensors")

# What PyTorch's description of a checkpoint is made of.
PLAIN = {
    "torch.distributed.checkpoint.metadata": (
        "Metadata", "TensorStorageMetadata", "TensorProperties", "_MEM_FORMAT_ENCODING",
        "ChunkStorageMetadata", "MetadataIndex", "StorageMeta",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    "pathlib": ("PosixPath",),
    "pathlib._local": ("PosixPath",),
}  # fmt: skip


class ShardCheckpoints:
    """The checkpoints of a run of several processes; the two newest are kept.

    A checkpoint is whole when its folder has its name: all processes have written by then.
    """

    def __init__(self, run: Path, world: World, shards: Shards) -> None:
        self.folder, self.world, self.shards = run / CHECKPOINTS, world, shards

    def files(self) -> list[Path]:
        return sharded_in(self.folder)

    def save(self, state: State, best: Path | None = None) -> None:
        """Write a checkpoint, all ranks together; ``best`` is the file of the best parameters.

        What one rank cannot write, no rank has written: all raise the same error.
        """
        world, path = self.world, self.folder / f"{self._next():06d}.shards"
        partial = path.with_name(path.name + files.PARTIAL)

        def begin() -> None:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)

        def finish() -> None:
            plain = {name: v for name, v in state.items() if not isinstance(v, Tensor)}
            if best is not None:
                files.sync(best)
                files.link(best, partial / BEST)
            for file in (partial / METADATA, *([partial / BEST] if best is not None else [])):
                all_sums[file.name] = _durable_sum(file)
            about = {"format": FORMAT, "sums": all_sums, "state": plain}
            with files.replacing(partial / STATE, durable=True) as file:
                file.write_text(json.dumps(about), encoding="utf-8")
            partial.rename(path)
            files.sync(self.folder)
            self._remove_but(self.files()[-KEPT:])

        def write() -> None:
            save(tensors, checkpoint_id=partial)

        def sums() -> dict[str, str]:
            mine = [file for file in partial.iterdir() if file.name.startswith(f"__{world.rank}_")]
            return {file.name: _durable_sum(file) for file in mine}

        self._together(partial, begin if world.leads else dict)
        tensors = dict(self._in_blocks(state))
        self._together(partial, write)
        parts = self._together(partial, sums)
        all_sums = {name: value for part in parts for name, value in part.items()}
        self._together(partial, finish if world.leads else dict)

    def _together(self, path: Path, work: Callable[[], Any]) -> list[Any]:
        """Return what the work of each rank returns; where one fails, all raise its error."""
        done, error = None, ""
        try:
            done = work()
        except (OSError, UserError) as caught:
            error = str(getattr(caught, "strerror", None) or caught)
        except CheckpointException as caught:  # of any rank, on all
            error = _reasons(caught)
        results = self.world.gather((done if not error else None, error))
        if errors := [error for _, error in results if error]:
            if self.world.leads:
                shutil.rmtree(path, ignore_errors=True)
            raise files.CannotWriteError(f"cannot write {path}: {errors[0]}")
        return [done for done, _ in results]

    def newest(self, say: Callable[[str], None]) -> State | None:
        """Read the newest intact checkpoint, whoever wrote it; ``say`` hears of damaged ones."""
        found: str | None = None
        if self.world.leads:
            for path in reversed(self.files()):
                if not (damage := _damage(path)):
                    found = path.name
                    break
                say(f"{path} is damaged ({damage})")
            if found is None and self.files():
                raise UserError(f"{self.folder}: none of its checkpoints is whole")
        found = self.world.gather(found)[0]
        if found is None:
            return None
        path = self.folder / found
        about = json.loads((path / STATE).read_text(encoding="utf-8"))
        state: State = about["state"]
        return state | self._read(path) | {"folder": path}

    def _read(self, path: Path) -> State:
        """Read what this rank has of a checkpoint, and join the blocks of tables."""
        reader = SafeReader(path)
        about = reader.read_metadata().state_dict_metadata
        own, parts = set(map(str, self.shards.own_blocks)), {}
        for name, part in about.items():
            block = name.rpartition(".")[2]
            if not block.isdigit() or block in own:
                kind = part.properties.dtype  # type: ignore[union-attr]
                parts[name] = torch.empty(part.size, dtype=kind)  # type: ignore[union-attr]
        try:
            load(parts, storage_reader=reader)
        except CheckpointException as error:
            raise UserError(f"{path}: {_reasons(error)}") from error
        joined: dict[str, dict[int, Tensor]] = {}
        state: State = {}
        for name, tensor in parts.items():
            table, _, block = name.rpartition(".")
            if block.isdigit() and is_sharded(table.rpartition(".")[2]):
                joined.setdefault(table, {})[int(block)] = tensor
            else:
                state[name] = tensor
        for table, blocks in joined.items():
            state[table] = torch.cat([blocks[block] for block in sorted(blocks)])
        return state

    def _in_blocks(self, state: State) -> Iterator[tuple[str, Tensor]]:
        for name, value in state.items():
            if not isinstance(value, Tensor):
                continue
            if not is_sharded(name.rpartition(".")[2]):
                yield name, value
                continue
            for block in self.shards.own_blocks:
                yield f"{name}.{block}", value[self.shards.own_rows(block)]

    def _next(self) -> int:
        newest = self.files()[-1:]
        number = int(newest[0].name.partition(".")[0]) + 1 if newest else 1
        numbers: list[int] = self.world.gather(number)
        return numbers[0]

    def _remove_but(self, kept: list[Path]) -> None:
        for path in self.folder.iterdir():
            if SHARDED.fullmatch(path.name) and path not in kept:
                shutil.rmtree(path, ignore_errors=True)


class SafeReader(FileSystemReader):
    """Reads a checkpoint that a stranger may have made: of a pickle only plain data are taken."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:  # noqa: ANN401
        with (Path(self.path) / METADATA).open("rb") as file:
            metadata: Metadata = _PlainData(file).load()
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


class _PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        kinds = PLAIN.get(module, ())
        if name in kinds or (module == "torch" and name in files.DTYPES):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint")


def _reasons(error: CheckpointException) -> str:
    reasons = [str(getattr(each, "strerror", None) or each) for each, _ in error.failures.values()]
    return " ".join("; ".join(dict.fromkeys(reasons)).split())


def _durable_sum(file: Path) -> str:
    files.sync(file)
    return _sum(file)


def _sum(file: Path) -> str:
    with reading(file), file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _damage(path: Path) -> str:
    """Say what is wrong with a checkpoint; empty: nothing."""
    try:
        about = json.loads(files.read_text(path / STATE))
        if about["format"] != FORMAT:
            return f"its format is {about['format']!r}"
        if not {"settings", "marks"} <= about["state"].keys():
            return f"{STATE} is not what it was"
        for name, value in about["sums"].items():
            if not NAME.fullmatch(name):
                return f"{STATE} names {name}, which is no file of a checkpoint"
            if _sum(files.regular_file(path / name)) != value:
                return f"the checksum of {name} differs"
        places = SafeReader(path).read_metadata().storage_data.values()
        if not {place.relative_path for place in places} <= about["sums"].keys():
            return f"{METADATA} names other files"
    except UserError as error:
        return str(error).removeprefix(f"{path}/")
    except (pickle.UnpicklingError, EOFError, IndexError) as error:
        return f"{METADATA}: {error}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{STATE} or {METADATA} is not what it was"
    return ""
