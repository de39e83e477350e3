"""Caches within a budget: shared rows, rows elsewhere than on the device, and their errors."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import resuming
from helpers import (
    CPU,
    SLOW,
    TINY,
    TWINS,
    Hearing,
    batch_of,
    new_kernels,
    new_model,
    new_sampler,
    paths,
    random_graph,
)
from nscaching import NegativeCache, TrainConfig, UserError, resume, train
from nscaching.data.index import Side
from nscaching.errors import Stopped
from nscaching.kernels import CacheAccess, CacheSide, Kernels, random
from nscaching.runs.checkpoints import Checkpoints
from nscaching.samplers import batch_rows
from nscaching.samplers.places import on_disk
from nscaching.samplers.shared_rows import least_rows, rows_within, share_rows
from nscaching.training import memory
from nscaching.training.fitting import place_caches
from nscaching.training.memory import Statement
from nscaching.training.trainer import Trainer
from resuming import SETTINGS, Alarm, assert_same, in_pieces

GRAPH = random_graph(entities=15, relations=3, train=90, valid=8, test=8)
INDEX = GRAPH.train_index
SIZES = len(GRAPH.entities), len(GRAPH.relations)
KEYS = sum(map(len, INDEX.values()))
ROOT = Path(__file__).parents[1]


def queries(side):
    """Return anchor and relation [keys] of the queries of a side."""
    codes = torch.from_numpy(INDEX[side].codes)
    return codes // SIZES[1], codes % SIZES[1]


# Which rows are shared.


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rows", [KEYS - 1, KEYS // 2, KEYS // 4, 6])
def test_rows_are_shared_within_a_relation_in_order_of_the_anchor(rows, share):
    shared = share_rows(INDEX, SIZES[0], rows, CPU, share)
    assert least_rows(INDEX) == 6
    assert sum(map(len, shared.values())) == rows
    alone, others, to_a_row = [], [], []
    for side in Side:
        anchor, relation = queries(side)
        row, visits = shared[side].find(anchor, relation), np.diff(INDEX[side].offsets)
        own = len(shared[side].own)
        assert set(row.tolist()) == set(range(len(shared[side])))
        alone += visits[row < own].tolist()
        others += visits[row >= own].tolist()
        assert (row < own).sum() == own
        for number in range(own, len(shared[side])):
            mine = row == number
            to_a_row.append(int(mine.sum()))
            (same,) = set(relation[mine].tolist())
            between = anchor[(relation == same) & (row >= own)].tolist()
            mine = anchor[mine].tolist()
            assert mine == [a for a in between if mine[0] <= a <= mine[-1]]
    assert min(alone, default=9) >= max(others, default=0)
    if share == 0 and rows > 6:
        assert max(to_a_row) <= -(-KEYS // (rows - 6))


BUDGETS = [
    ("100%", 1000),
    ("25%", 250),
    ("1.5%", 15),
    ("20KiB", 102),
    ("20 kb", 102),
    ("1GiB", 1000),
]


@pytest.mark.parametrize(("budget", "rows"), BUDGETS)
def test_budgets(budget, rows):
    assert rows_within(budget, keys=1000, n1=50) == rows


@pytest.mark.parametrize("budget", ["", "8", "8 Gigs", "-1GiB", "0%", "101%", "1e9B", "GiB", "0B"])
def test_budgets_that_are_none(budget):
    wanted = "expected bytes with a unit, such as 4GiB, or a share, such as 25%, not "
    with pytest.raises(UserError, match=f"^cache_memory: {wanted}{re.escape(repr(budget))}$"):
        TrainConfig().changed(cache_memory=budget)
    with pytest.raises(UserError, match=f"^memory: {wanted}"):
        NegativeCache(GRAPH.train, *SIZES, 4, memory=budget)


def test_a_budget_below_one_row_for_each_relation_and_side(tmp_path):
    few = r"80B holds 5 rows of 4 entities; each relation needs a row on each side, 6 in all: "
    with pytest.raises(UserError, match=f"^memory {few}give 96B or more$"):
        NegativeCache(GRAPH.train, *SIZES, 4, memory="80B")
    settings = TINY | {"cache_memory": "80B"}
    with pytest.raises(UserError, match=f"^cache_memory {few}give 96B or more$"):
        train(GRAPH, **settings, out=tmp_path / "run")
    assert not any(tmp_path.iterdir())
    assert sum(map(len, NegativeCache(GRAPH.train, *SIZES, 4, memory="96B").rows.values())) == 6


# What a step with shared rows does.

WAYS = [
    {},
    {"refresh_side": "drawn", "shared_candidates": True},
    {"model": "ComplEx", "draw": "importance", "candidates": "slots"},
    {"model": "ComplEx", "objective": "softmax", "tail": 5, "near": 2},
    {"model": "TransD", "filter_known": True, "negatives": 2},
]
OF_SLOW = (1, 3)  # of these, the ways that an interpreter has the time for


def dealt(cache, batch, side, mine):
    """Return the rows of a batch [B, N1] as its triples get them, and how they go back.

    Of each row: the triples that refresh it, in the order of the batch.
    """
    start = random.stream(cache.draws.seed, cache.draws.tick, random.DEAL[side])
    anchor, _ = side.query(batch.head, batch.tail)
    row, own = cache.shared[side].find(anchor, batch.relation), len(cache.shared[side].own)
    rows, back = cache.rows[side][row].clone(), {}
    for number in row.unique().tolist():
        places = [i for i in range(len(batch)) if row[i] == number and mine[i]]
        parts = 1 if number < own else -(-len(places) // batch_rows.SEEN_BY)
        back[number] = places[::-1][:parts]
        for place, i in enumerate(places):
            for slot in range(rows.shape[1]):
                if slot % parts != place % parts:
                    bits = random.bits(start, batch.key(side)[i], torch.tensor(slot))
                    rows[i, slot] = random.whole(bits, SIZES[0])
    return rows, back


def known_at(draws, key, side, place, entity):
    return draws.is_known(side, key[place], entity)


@paths
@pytest.mark.parametrize("settings", WAYS, ids=lambda s: "-".join(map(str, s.values())) or "plain")
def test_each_query_makes_a_shared_row_its_own_before_the_draw(path, settings, monkeypatch):
    monkeypatch.setattr(batch_rows, "SEEN_BY", 2)
    kernels, rows = new_kernels(path), range(12 if path in SLOW else len(GRAPH.train))
    batch, model = batch_of(GRAPH, rows), new_model(settings.get("model", "TransE"), SIZES[0])
    sampler = new_sampler(GRAPH, kernels=kernels, **settings, cache_memory="30%")
    cache = sampler.cache
    if "tail" in settings:  # of which the learner refreshes the rows
        rivals = sampler.sample(batch, model)
        for side in Side:
            row = cache.shared[side].find(*queries(side))[batch.key(side)]
            assert torch.equal(rivals.cached(side), cache.rows[side][row].long())
        return
    cache.draws.tick += 1
    coin, every = cache.draws.choose_head(batch), torch.ones(len(batch), dtype=torch.bool)
    both = "refresh_side" not in settings
    wanted, after = {}, {side: ids.clone() for side, ids in cache.rows.items()}
    for side in Side:
        mine = every if both else coin if side is Side.HEAD else ~coin
        ids, back = dealt(cache, batch, side, mine)
        anchor, _ = side.query(batch.head, batch.tail)
        key = batch.key(side)
        one = CacheSide(side, ids, anchor, batch.relation, key)
        is_known = None
        if cache.draws.filter_known:
            is_known = functools.partial(known_at, cache.draws, key)
        place = torch.arange(len(batch)).where(mine, -1)
        asked = cache.settings, cache.draws.seed, cache.draws.tick, is_known
        kernels.refresh(CacheAccess([one], [place], model, *asked))
        wanted[side] = ids
        for row, places in back.items():
            for slot in range(ids.shape[1] if places else 0):
                after[side][row, slot] = ids[places[slot % len(places)], slot]
    cache.draws.tick -= 1
    drawn = sampler.sample(batch, model)
    assert torch.equal(drawn.replace_head, coin)
    for side in Side:
        assert torch.equal(cache.rows[side], after[side])
        for i in torch.nonzero(coin if side is Side.HEAD else ~coin).flatten().tolist():
            inside = set(drawn.entity[i].tolist()) <= set(wanted[side][i].tolist())
            assert inside or "filter_known" in settings
    sampler.update(batch, model)  # the rows have been refreshed already
    sampler.settle()
    assert all(torch.equal(cache.rows[side], after[side]) for side in Side)


def test_known_triples_stay_out_of_draws_from_shared_rows():
    dense = random_graph(entities=7, relations=2, train=80, valid=0, test=0)
    sampler = new_sampler(dense, n1=3, filter_known=True, negatives=2, cache_memory="20%")
    batch, model = batch_of(dense), new_model("TransE", 7, 2)
    known = {tuple(triple) for triple in dense.train.tolist()}
    full = np.diff(dense.train_index[Side.TAIL].offsets) == 7
    for _ in range(30):
        drawn = sampler.sample(batch, model)
        for i, relation in enumerate(batch.relation.tolist()):
            for head, tail in zip(drawn.head[i].tolist(), drawn.tail[i].tolist(), strict=True):
                assert (head, relation, tail) not in known or full[batch.tail_key[i]]
        sampler.settle()


def test_a_loop_of_ones_own_refreshes_shared_rows_before_it_samples():
    cache = NegativeCache(GRAPH.train, *SIZES, 4, 3, memory="96B", refresh="top", draw="uniform")
    triples = torch.from_numpy(GRAPH.train).long()

    def score(head, relation, tail):  # the best answer is the next entity
        return -((head - tail).abs() - 1).abs().float()

    for _ in range(40):
        cache.refresh(*triples.T, score)
    negatives = cache.sample(*triples.T, k=2)
    cache.settle()
    others = cache.sample(*triples.T, k=2)  # one row for each relation and side
    own, of_others = (score(n.head, 0, n.tail).mean() for n in (negatives, others))
    assert own > of_others + 0.5
    assert "queries for heads" in repr(cache)
    assert cache.nbytes < 16 * KEYS + 96 + 8 * 6 + 1


# A budget that suffices, and rows elsewhere: the same to the last bit.

PLACES = [
    {"cache_memory": "1GiB"},
    {"cache_memory": "100%", "cache_place": "host"},
    {"cache_place": "disk"},
]


def trained(path, **settings):
    """Return parameters and caches after two epochs; on a GPU, where one runs the path."""
    on_gpu = path == "triton" and torch.cuda.is_available()
    place = {"kernels": path, "device": "cuda" if on_gpu else "cpu"}
    graph = random_graph(entities=9, train=12, valid=0, test=0) if path in SLOW else GRAPH
    small = {"batch_size": 6, "dim": 2} if path in SLOW else {"batch_size": 12}
    config = TrainConfig().changed(**{**TINY, **settings, **place, **small})
    trainer = Trainer(graph, config)
    for epoch in range(1, 2 if path in SLOW else 4):
        trainer.epoch(epoch)
    return {**trainer.model.state_dict(), **trainer.sampler.state(), "sums": trainer.sampler.tick}


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        pytest.param(path, way, id=f"{path}-{number}")
        for path in ("reference", *TWINS)
        for number, way in enumerate(WAYS)
        if path not in SLOW or number in OF_SLOW
    ],
)
def test_the_place_of_a_cache_changes_no_bit(path, settings):
    plain = trained(path, **settings)
    for place in PLACES[1:2] if path in SLOW else PLACES:
        other = trained(path, **settings, **place)
        assert other.keys() == plain.keys()
        for name, tensor in plain.items():
            assert torch.equal(other[name].cpu(), tensor.cpu()), (place, name)


@paths
def test_shared_rows_are_learned_from_alike_wherever_they_are(path):
    here, there = (trained(path, cache_memory="40%", cache_place=p) for p in ("auto", "host"))
    assert all(torch.equal(here[name].cpu(), there[name].cpu()) for name in here)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_rows_are_copied_alike_on_all_paths():
    kernels = importlib.import_module("nscaching.kernels.gpu.kernels").TritonKernels()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = torch.arange(35, dtype=torch.int32, device=device).view(7, 5)
    row, last = torch.tensor([[1, 1, 4, 6], [1, 1, 2, 3]], device=device)
    copies = Kernels().take_rows(rows, row)
    assert torch.equal(kernels.take_rows(rows, row), copies)
    copies += 100 * torch.arange(1, 5, dtype=torch.int32, device=device).unsqueeze(1)
    one, other = rows.clone(), rows.clone()
    Kernels().put_rows(one, row, copies, last)
    kernels.put_rows(other, row, copies, last)
    assert torch.equal(one, other)
    assert one[1].tolist() == [205, 206, 207, 208, 209]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_reach_rows_in_host_memory():
    config = TrainConfig().changed(**TINY).changed(device="cuda", cache_place="host")
    cache = Trainer(GRAPH, config).sampler.cache
    assert cache.reached
    assert not any(ids.is_cuda for ids in cache.rows.values())


# Checkpoints, kills, run folders.


@pytest.mark.parametrize("objective", ["margin", "softmax"])
def test_a_stopped_training_comes_out_the_same(tmp_path, objective):
    settings = SETTINGS | {"cache_memory": "50%", "cache_place": "disk", "objective": objective}
    train(resuming.GRAPH, out=tmp_path / "whole", **settings)
    assert in_pieces(tmp_path / "pieces", Alarm(5, 17), **settings) == 2
    assert_same(tmp_path / "whole", tmp_path / "pieces")


def test_kills_with_a_cache_in_a_file(tmp_path):
    words = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--kills", "3", "--no-pictures"]
    words += ["--cache-memory", "50%", "--cache-place", "disk"]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["different"] == 0
    assert not list(tmp_path.iterdir())  # not even the files of killed processes


def test_another_budget_does_not_go_on(tmp_path):
    settings = SETTINGS | {"checkpoints": tmp_path, "checkpoint_every": 0}
    with pytest.raises(Stopped):
        train(GRAPH, **settings, cache_memory="50%", listener=Hearing(stop=Alarm(7)))
    assert Checkpoints(tmp_path).newest(print) is not None
    with pytest.raises(UserError, match=r"the run has cache_memory 50% and cannot resume with 25%"):
        train(GRAPH, **settings, cache_memory="25%")
    whole = train(GRAPH, **SETTINGS, cache_memory="50%")
    pieces = train(GRAPH, **settings, cache_memory="50%", cache_place="disk")  # which may differ
    for name, tensor in whole.sampler_state.items():
        assert torch.equal(tensor, pieces.sampler_state[name])
    cache, other = (NegativeCache(GRAPH.train, *SIZES, 4, memory=m) for m in ("50%", "25%"))
    with pytest.raises(UserError, match=r"^the state holds \d+ rows for heads, not \d+: give mem"):
        other.load_state_dict(cache.state_dict())


def test_what_a_run_says_and_shows(tmp_path):
    said = []
    listener = Hearing(announce=said.append)
    path = tmp_path / "run"
    settings = TINY | {"cache_memory": "25%", "cache_place": "disk"}
    run = train(GRAPH, **settings, listener=listener, out=path)
    rows = sum(map(len, run.sampler_state.values()))
    assert rows == KEYS // 4
    wanted = rf"; {rows} cache rows for {KEYS} queries within 25%, 0.0 MiB in a file on the disk "
    assert re.search(wanted + r"\(asked for\): the \d+ most visited have their own, ", said[0])
    cache = NegativeCache(GRAPH.train, *SIZES, 4, memory="25%")
    cache.rows = {side: run.sampler_state[f"{side.value}_cache"] for side in Side}
    for head, relation, _ in GRAPH.train[:20].tolist():
        (shown,) = run.inspect(head=f"e{head}", relation=f"r{relation}")["epochs"]
        held = cache.entries(head=head, relation=relation).tolist()
        assert {one["name"] for one in shown["entities"]} == {f"e{entity}" for entity in held}
    said.clear()
    train(GRAPH, **TINY, cache_memory="8GiB", listener=listener)
    assert f"; {KEYS} queries have a cache each, 0.0 MiB: 8GiB suffices" in said[0]


# The statement.


def test_stated_bytes_are_those_of_the_tensors(tmp_path):
    for place, settings in (("memory", {}), ("disk", {"cache_place": "disk"})):
        config = TrainConfig().changed(**TINY, cache_memory="25%", **settings)
        found = {
            item.what.split(": ")[0]: item for item in Statement(GRAPH, config, tmp_path).items
        }
        cache = Trainer(GRAPH, config, folder=tmp_path).sampler.cache
        assert found["caches"].bytes == sum(ids.nbytes for ids in cache.rows.values())
        assert found["caches"].place == place
        finding = sum(shared.nbytes for shared in cache.shared.values())
        assert found["finding the rows of queries"].bytes == finding == 8 * (KEYS // 4)
        assert "queries of the caches' keys" not in found


def test_caches_go_to_host_memory_where_the_gpu_is_too_small(monkeypatch):
    free = {"GPU memory": 0}
    monkeypatch.setattr(memory, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(memory, "choose_kernels", lambda name, device: Kernels())
    monkeypatch.setattr(memory.machine, "gpu_available", lambda: free["GPU memory"])
    graph = random_graph(entities=200, train=9000)
    config = TrainConfig().changed(**TINY | {"n1": 200})
    peaks = [
        Statement(graph, config.changed(cache_place=place)).peak("GPU memory")
        for place in ("device", "host")
    ]
    for available, place in ((peaks[0], "device"), (peaks[0] - 1, "host"), (1, "device")):
        free["GPU memory"] = available
        placed, why = place_caches(graph, config)
        assert placed.cache.cache_place == place
        assert ("on the GPU the training would need" in why) == (place == "host")
    asked = config.changed(cache_place="disk")
    assert place_caches(graph, asked) == (asked, "asked for")


def test_a_disk_that_is_too_small(tmp_path):
    with pytest.raises(UserError, match=r"cannot reserve 51,200\.0 GiB for the rows of a cache: "):
        on_disk(tmp_path)(1 << 38, 50)
    with pytest.raises(UserError, match=r"no: cannot reserve .*: No such file or directory$"):
        on_disk(tmp_path / "no")(1, 1)
    assert not any(tmp_path.iterdir())
    rows = on_disk(tmp_path)(3, 5)
    rows.fill_(7)
    assert rows.shape == (3, 5)
    assert not any(tmp_path.iterdir())  # the file has no name


def test_a_training_without_room_for_its_file_leaves_nothing(tmp_path, monkeypatch):
    def full(file, begin, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"No space left on device$"):
        train(GRAPH, **TINY, cache_place="disk", out=tmp_path / "run")
    assert not any(tmp_path.iterdir())
    monkeypatch.undo()
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train(GRAPH, **SETTINGS, cache_place="disk", out=path, listener=Hearing(stop=Alarm(7)))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"No space left on device$"):
        resume(path)
    monkeypatch.undo()
    train(GRAPH, **SETTINGS, out=tmp_path / "whole", cache_place="disk")
    resume(path)
    assert_same(path, tmp_path / "whole")
