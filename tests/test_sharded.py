"""Several processes train as one: the same negatives and caches, and the same parameters."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ranks
from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.kernels.shards import BLOCKS, Shards
from nscaching.sharded.tables import is_sharded

SOFTMAX = {
    "objective": "softmax", "tail": 9, "n1": 6, "penalty": 0.01, "penalty_norm": "n3",
    "reciprocal": True, "relation_weight": 0.5, "near": 2,
}  # fmt: skip
MODELS = ("TransE", "TransH", "TransD", "DistMult", "ComplEx")
# Slopes of norm 1 are whole numbers that cancel or leave rounding, which Adam's first step makes as
# large as any other gradient: TransH has norm 2.
CASES = {
    f"{model}-{sampler}": {"model": model, "sampler": sampler, "norm": 1 + (model == "TransH")}
    for model, sampler in itertools.product(MODELS, ("nscaching", "bernoulli"))
} | {
    "softmax of the cache": {"model": "ComplEx", **SOFTMAX},
    "softmax of a distance": {"model": "TransE", "objective": "softmax", "tail": 9, "n1": 3},
    "softmax of a tail": {"model": "DistMult", "sampler": "uniform", "objective": "softmax"},
    "many negatives": {"model": "RotatE", "sampler": "self-adversarial", "negatives": 5},
    "many cached": {"model": "TransE", "negatives": 3, "refresh_side": "drawn"},
    "cubes": {"model": "ComplEx", "penalty": 0.1, "penalty_norm": "n3", "optimizer": "row-adam"},
    "projected": {"model": "TransR", "optimizer": "row-adagrad"},
    "weights": {"model": "TransM", "n2": 9, "candidates": "slots", "shared_candidates": True},
    "strata": {"model": "ComplEx", "n1": 6, "n2": 6, "exchange": "strata", "strata": 6},
    "without known triples": {"model": "TransE", "sampler": "uniform", "filter_known": True},
}  # fmt: skip
PROJECTED = "TransH", "TransD", "TransR"  # which have no compiled queries
CASES |= {
    f"{name}, numba": case | {"kernels": "numba"}
    for name, case in CASES.items()
    if case["model"] not in PROJECTED and case.get("objective") != "softmax"
}


@given(st.integers(1, 700), st.integers(1, BLOCKS))
def test_each_entity_has_one_place(entities, size):
    if size > entities:
        with pytest.raises(UserError, match="too many"):
            Shards(entities, size, 0)
        return
    every = torch.arange(entities)
    seen = []
    for rank in range(size):
        shards = Shards(entities, size, rank)
        own = shards.own_entities()
        assert len(own) == len(shards) > 0
        assert (shards.owner(own) == rank).all()
        assert shards.mine(every).sum() == len(own)
        assert torch.equal(shards.place(own), torch.arange(len(own)))
        first = torch.tensor(shards.start(rank))
        assert torch.equal(shards.entity_at(first + torch.arange(len(own))), own)
        blocks = [torch.arange(len(own))[shards.own_rows(b)] for b in shards.own_blocks]
        assert torch.equal(torch.cat(blocks), torch.arange(len(own)))
        for block, rows in zip(shards.own_blocks, blocks, strict=True):
            assert (own[rows] % shards.blocks == block).all()
        seen.append(own)
    # The order of all rows does not depend on the number of ranks.
    assert torch.equal(torch.cat(seen), Shards(entities, 1, 0).own_entities())


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_agree_with_one_process(size, tmp_path):
    results = ranks.on_ranks(size, tmp_path / "ranks", ranks.steps_of_all, [*CASES.values()])
    for (name, settings), found in zip(CASES.items(), zip(*results, strict=True), strict=True):
        one = ranks.steps_of_one(settings)
        try:
            assert_agree(one, found)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def assert_agree(one, found):
    whole = one.model.state_dict()
    for state, own, rows, sums, (record, ranked) in found:
        for name, table in state.items():
            expected = whole[name][own] if is_sharded(name) else whole[name]
            torch.testing.assert_close(table, expected, rtol=1e-4, atol=2e-6)
        torch.testing.assert_close(sums, one.meter.sums, rtol=1e-5, atol=1e-6)
        if rows:  # bit for bit
            cache = one.sampler.cache
            assert all(torch.equal(ids, cache.rows[side][key]) for side, (key, ids) in rows.items())
        expected = one.rank("valid", 1)
        assert record["mrr"] == pytest.approx(expected["mrr"], rel=1e-4)
        for side in Side:
            assert np.array_equal(ranked[side].optimistic, one.ranks["valid"][side].optimistic)
    if found[0][2]:  # every key has an owner, and one only
        for side in Side:
            keys = torch.cat([rows[side][0] for _, _, rows, *_ in found])
            assert torch.equal(keys.sort().values, torch.arange(len(one.sampler.cache.rows[side])))
    for name in whole:  # what all have in common is the same to the last bit
        if not is_sharded(name):
            assert all(torch.equal(state[name], found[0][0][name]) for state, *_ in found)


@pytest.mark.parametrize("candidates", ["set", "slots"])
def test_a_key_visits_one_stratum(candidates):
    """A refresh changes the slots of one shard only, and keeps entities of that shard there."""
    settings = {"n1": 8, "n2": 8, "strata": 4, "candidates": candidates}
    one = ranks.steps_of_one(settings, 0)
    shards, cache, visited = Shards(37, 4, 0), one.sampler.cache, set()
    for _ in range(6):
        before = {side: rows.clone() for side, rows in cache.rows.items()}
        one.step(32)
        for side, rows in cache.rows.items():
            assert torch.equal(shards.owner(rows), torch.arange(8).expand_as(rows) // 2)
            changed = (rows != before[side]).view(-1, 4, 2).any(2)  # [keys, strata]
            assert (changed.sum(1) <= 1).all()
            key, shard = changed.nonzero(as_tuple=True)
            assert ((int(one.sampler.tick) + key) % 4 == shard).all()
            visited |= set(shard.tolist())
    assert visited == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n1": 5, "strata": 2}, "strata 2: n1 5 is no multiple of it"),
        ({"n1": 6, "strata": 3}, None),
        ({"n1": 18, "strata": 3}, "strata 3: at most 2 here"),
    ],
)
def test_strata_divide_a_row(settings, message):
    if message is None:
        ranks.steps_of_one(settings, 1)
        return
    with pytest.raises(UserError, match=message):
        ranks.steps_of_one(settings, 1)


TRAFFIC = {
    "bernoulli": {"model": "TransE", "sampler": "bernoulli", "dim": 16},
    "scores": {"model": "ComplEx", "dim": 16, "n1": 20, "n2": 10},
    "strata": {"model": "ComplEx", "dim": 16, "n1": 20, "n2": 10, "strata": 4},
    "softmax": {"model": "ComplEx", "objective": "softmax", "n1": 20, "tail": 32, "dim": 16},
    "scores, compiled": {"model": "ComplEx", "dim": 16, "n1": 20, "n2": 10, "kernels": "numba"},
    "strata, compiled": {"model": "TransE", "n1": 20, "strata": 4, "kernels": "numba"},
}  # fmt: skip


def test_the_bytes_are_those_of_the_formula(tmp_path):
    """Compare what four ranks sent with the formula, which knows the average graph."""
    (found, *_) = ranks.on_ranks(4, tmp_path / "ranks", ranks.traffic, [*TRAFFIC.values()])
    for measured, formula in found:
        expected = formula.bytes_of_triple()
        assert measured.keys() == expected.keys()
        for kind, sent in measured.items():
            assert sent == pytest.approx(expected[kind], rel=0.05), (formula, kind)
