"""Training and ranking at size, on a made-up graph: seconds to ready, positives/s, memory, growth.

python benchmarks/size.py [--entities 4.6e6] [--triples 20.6e6] [--relations 822] [--seconds 10]
    [--models TransE ComplEx] [--samplers nscaching bernoulli] [--device auto] [--out size.jsonl]
python benchmarks/size.py --entities 1e5 1e6 1e7 1e8 --dim 32 --models TransE --seconds 5
python benchmarks/size.py --entities 86e6 --triples 304.7e6 --relations 14824 --as-made --test 1000
    --models TransE --samplers nscaching --optimizer row-adagrad --cache-memory 24GiB
    --batch-size 65536 --checkpoint runs/size

The graph is that of a seed: heads, relations and tails are skewed, a few of them very frequent.
Names are made when they are asked for. Each part stops after --seconds, and says what a whole epoch
or ranking would take. A line of JSON for each row goes to --out as soon as the row is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from speed import copy_bandwidth, machine, wait

from nscaching import KnowledgeGraph, TrainConfig, UserError
from nscaching.data.index import Ids, distinct
from nscaching.evaluation.chunks import is_shortage
from nscaching.evaluation.ranking import BUDGET, Progress, Queries, rank
from nscaching.evaluation.sampled import rank_sampled
from nscaching.kernels import choose_device, choose_kernels
from nscaching.kernels.cpu.threads import torch_threads
from nscaching.models import MODELS, Model
from nscaching.runs.checkpoints import Checkpoints
from nscaching.training.fitting import check
from nscaching.training.machine import memory_held
from nscaching.training.memory import Statement
from nscaching.training.trainer import Trainer

WARM_UP = 4  # steps: the first compiles, the second records a CUDA graph
FINE = 1 << 23  # entities
MOVED = 4 * 3 * 2  # of a positive: rows, in parameters and two moments, read and written

Row = dict[str, Any]


class Numbered(Sequence[str]):
    """Names that are made when they are asked for."""

    def __init__(self, letter: str, count: int) -> None:
        self.letter, self.count = letter, count

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(self.count))]
        if not -self.count <= place < self.count:
            raise IndexError(place)
        return f"{self.letter}{place % self.count}"


def make(entities: int, relations: int, triples: int, skew: float, seed: int) -> Ids:
    """Return skewed random triples [n, 3]; half of the entities have few of them."""
    random = np.random.default_rng(seed)
    columns = []
    for count, power in ((entities, skew), (relations, 1 + skew), (entities, skew)):
        kind: Any = np.float32 if count < FINE else np.float64  # 2²⁴ different numbers, or more
        place = (count * random.random(triples, dtype=kind) ** power).astype(np.int32)
        columns.append(np.minimum(place, count - 1))
    return np.stack(columns, axis=1)


def ready(asked: argparse.Namespace, entities: int, triples: int) -> tuple[KnowledgeGraph, Row]:
    """Make the graph from its ids, with all that a training and a ranking need; time the parts."""
    ids = make(entities, asked.relations, triples, asked.skew, asked.seed)
    test = min(asked.test, len(ids) // 10)
    row: Row = {"part": "ready", "entities": entities, "triples": triples}
    began = last = time.perf_counter()

    def done(what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        row[what], last = now - last, now

    if not asked.as_made:
        ids = distinct(ids)
        ids = ids[np.random.default_rng(asked.seed).permutation(len(ids))] if test else ids
        done("distinct")
    names: Any = (Numbered("e", entities), Numbered("r", asked.relations))
    graph = KnowledgeGraph(*names, train=ids[test:], valid=ids[:0], test=ids[:test], name="made")
    row["keys"] = sum(map(len, graph.train_index.values()))
    done("index")
    assert graph.train_keys
    done("keys of triples")
    assert len(graph.head_probability) == asked.relations
    done("probabilities")
    assert graph.filter_index
    done("filter index")
    row["seconds"] = time.perf_counter() - began
    row["bytes a triple"] = graph.index_bytes() / len(graph.train)
    return graph, row


def step_bytes(trainer: Trainer) -> float:
    """Return the bytes that a positive moves at least, by the keys of some batches."""
    config, row = trainer.config, 4 * trainer.model.entity.shape[1]
    size, found = min(config.batch_size, len(trainer.triples)), []
    for _ in range(3):
        batch = trainer.triples.take(size)[1]
        found.append(sum(len(key.unique()) for key in (batch.head_key, batch.tail_key)) / size)
    cached = np.mean(found) * (config.cache.n1 + config.cache.n2) * row
    return float(cached * trainer.sampler.has_cache + MOVED * row)


def epoch(asked: argparse.Namespace, graph: KnowledgeGraph, settings: Row) -> Row:
    """Time steps of a training for some seconds."""
    forget(asked.where)
    began = time.perf_counter()
    config = TrainConfig().changed(
        dim=asked.dim, n1=asked.n1, n2=asked.n2, batch_size=asked.batch_size,
        optimizer=asked.optimizer, cache_memory=asked.cache_memory, device=asked.where.type,
        **settings,
    )  # fmt: skip
    stated = Statement(graph, config)
    check(stated)
    trainer = Trainer(graph, config)
    trainer.sampler.begin_epoch(1)
    size = min(config.batch_size, len(trainer.triples))
    wait(asked.where)
    row: Row = {"part": "epoch", "entities": len(graph.entities), **settings}
    row["seconds to ready"] = time.perf_counter() - began
    with torch_threads(trainer.torch_threads):  # as in a training
        for _ in range(WARM_UP):
            trainer.step(size)
        wait(asked.where)
        took, steps, at_once = 0.0, 0, 1
        while took < asked.seconds and steps * size < 2 * len(graph.train):
            began = time.perf_counter()
            for _ in range(at_once):
                trainer.step(size)
            wait(asked.where)
            took, steps = took + time.perf_counter() - began, steps + at_once
            at_once = min(2 * at_once, 256)
    row["positives/s"] = steps * size / took
    row["epoch seconds"] = len(graph.train) / row["positives/s"]
    row["bytes a positive"] = step_bytes(trainer)
    row["share of bandwidth"] = row["positives/s"] * row["bytes a positive"] / asked.bandwidth
    row["stated GiB"] = stated.peak(stated.device) / 2**30
    row["peak GiB"] = peak(asked.where)
    row["memory GiB"] = stated.peak("memory") / 2**30, memory_held("VmHWM") / 2**30
    if asked.checkpoint:
        row |= checkpoint(asked, trainer, size)
    return row


def checkpoint(asked: argparse.Namespace, trainer: Trainer, size: int) -> Row:
    """Write a checkpoint, go on, go back to the checkpoint, and go on again the same way."""
    checkpoints = Checkpoints(asked.checkpoint)
    asked.checkpoint.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    path = checkpoints.save(trainer.checkpoint())
    row: Row = {"checkpoint seconds": time.perf_counter() - began}
    row["checkpoint GiB"] = path.stat().st_size / 2**30

    def go_on() -> list[float]:
        trainer.triples.go_to(0, 0)
        for _ in range(8):
            trainer.step(size)
        tables = trainer.model.state_dict().values()
        return [float(table.sum(dtype=torch.float64)) for table in tables]

    first, began = go_on(), time.perf_counter()
    state = checkpoints.newest(print)
    assert state is not None
    trainer.restore(state)
    row["resume seconds"] = time.perf_counter() - began
    row["goes on alike"] = go_on() == first
    checkpoints.remove()
    return row


class LateError(Exception):
    """The seconds of a part are over."""


def ranking(asked: argparse.Namespace, graph: KnowledgeGraph, model: str) -> Iterator[Row]:
    """Time the filtered ranking of the test triples, among all entities and among candidates."""
    forget(asked.where)
    size = len(graph.entities), len(graph.relations), asked.dim
    with torch.device(asked.where):
        made: Model = MODELS.get(model)(*size, 1)
        made.reset()
    kernels = choose_kernels("auto", asked.where)
    every = Queries(graph, graph.test, device=asked.where)
    few = Queries(graph, graph.test[:2], device=asked.where)

    def full(queries: Queries, progress: Progress | None) -> None:
        rank(made, queries, kernels=kernels, progress=progress)

    def sampled(queries: Queries, progress: Progress | None) -> None:
        rank_sampled(
            made, queries, asked.candidates, 0, budget=BUDGET, kernels=kernels, progress=progress
        )

    ways: list[tuple[str, Callable[[Queries, Progress | None], None]]] = [("all", full)]
    if asked.candidates < size[0] - 1:
        ways.append((f"{asked.candidates:,} sampled", sampled))
    for among, work in ways:
        work(few, None)
        wait(asked.where)
        began, share = time.perf_counter(), 1.0

        def late(done: int, of: int, began: float = began) -> None:
            nonlocal share
            share = done / of
            if time.perf_counter() - began > asked.seconds:
                raise LateError

        with contextlib.suppress(LateError):
            work(every, late)
        wait(asked.where)
        took = time.perf_counter() - began
        row: Row = {"part": "ranking", "entities": size[0], "model": model, "among": among}
        row |= {"triples": len(graph.test), "ranked": share, "seconds": took / share}
        yield row | {"peak GiB": peak(asked.where)}


def forget(device: torch.device) -> None:
    """Give back what earlier parts took."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak(device: torch.device) -> float:
    """Return the GiB of the device's memory, or of this process, at its peak."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return memory_held("VmHWM") / 2**30


def parts(asked: argparse.Namespace) -> Iterator[Row]:
    """Measure all parts, one graph after another; say of a part that does not fit why."""
    for entities in map(int, asked.entities):
        triples = int(asked.triples or min(20.6e6, 20.6 / 4.6 * entities))
        graph, row = ready(asked, entities, triples)
        yield row
        for model in asked.models:
            for sampler in asked.samplers:
                settings = {"model": model, "sampler": sampler}
                try:
                    yield epoch(asked, graph, settings)
                except (UserError, MemoryError, RuntimeError) as error:
                    if not (isinstance(error, UserError) or is_shortage(error)):
                        raise
                    why = " ".join(str(error).split())[:160]
                    yield {"part": "epoch", "entities": entities, **settings, "refused": why}
            if len(graph.test):
                yield from ranking(asked, graph, model)


def table(rows: list[Row]) -> None:
    """Print what was measured, short."""
    print("\n| entities | part | |\n|---|---|---|")
    for row in rows:
        what = " ".join(str(row[n]) for n in ("part", "model", "sampler", "among") if n in row)
        if "refused" in row:
            said = row["refused"]
        elif row["part"] == "epoch":
            said = (
                f"{row['positives/s'] / 1e6:.2f} M positives/s, {row['epoch seconds']:.1f} s, "
                f"{row['bytes a positive'] / 1e3:.1f} kB each, "
                f"{100 * row['share of bandwidth']:.0f}% of the bandwidth, "
                f"{row['peak GiB']:.1f} GiB ({row['stated GiB']:.1f} stated)"
            )
            if "checkpoint seconds" in row:
                said += (
                    f", checkpoint of {row['checkpoint GiB']:.1f} GiB in "
                    f"{row['checkpoint seconds']:.0f} s, read in {row['resume seconds']:.0f} s, "
                    f"goes on {'alike' if row['goes on alike'] else 'OTHERWISE'}"
                )
        elif row["part"] == "ranking":
            of = "" if row["ranked"] == 1 else f", from {100 * row['ranked']:.0f}% of them"
            said = f"{row['seconds']:.2f} s for {row['triples']:,} triples{of}"
        else:
            said = f"{row['seconds']:.1f} s for {row['triples']:,} triples, {row['keys']:,} keys"
        print(f"| {row['entities']:,} | {what} | {said} |")


def main() -> None:
    """Measure, write each row as it comes, print a table last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=float, nargs="+", default=[4.6e6])
    parser.add_argument("--triples", type=float, default=0, help="0: 4.5 an entity, at most 20.6e6")
    parser.add_argument("--relations", type=int, default=822)
    parser.add_argument("--test", type=int, default=5000, help="triples to rank; 0: no ranking")
    parser.add_argument("--skew", type=float, default=2.0, help="1: all entities alike")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="*", default=["TransE", "ComplEx"])
    parser.add_argument("--samplers", nargs="*", default=["nscaching", "bernoulli"])
    for name, value in (("dim", 100), ("n1", 50), ("n2", 50), ("batch-size", 16384)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--optimizer", default="row-adam")
    parser.add_argument("--cache-memory", help="a budget for the caches, such as 24GiB")
    parser.add_argument("--as-made", action="store_true", help="keep repeats and order of triples")
    parser.add_argument("--checkpoint", type=Path, help="a folder to write one to, and resume from")
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=10, help="of each part at most")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/size.jsonl"))
    asked = parser.parse_args()
    asked.where = choose_device(asked.device)
    torch.set_flush_denormal(True)  # as ``train`` does
    asked.bandwidth = copy_bandwidth(asked.where)
    head = machine(asked.where, asked.bandwidth)
    print(json.dumps(head))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with asked.out.open("w", encoding="utf-8") as file:
        for row in parts(asked):
            print(json.dumps(row), flush=True)
            file.write(json.dumps({"device": head["device"], **row}) + "\n")
            file.flush()
            rows.append(row)
    table(rows)


if __name__ == "__main__":
    main()
