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
from nscaching.sharded.shards import BLOCKS, Shards
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
    "without known triples": {"model": "TransE", "sampler": "uniform", "filter_known": True},
}  # fmt: skip


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
        blocks = [torch.arange(len(own))[shards.own_rows(b)] for b in shards.own_blocks]
        assert torch.equal(torch.cat(blocks), torch.arange(len(own)))
        for block, rows in zip(shards.own_blocks, blocks, strict=True):
            assert (own[rows] % shards.blocks == block).all()
        seen.append(own)
    # The order of all rows does not depend on the number of ranks.
    assert torch.equal(torch.cat(seen), Shards(entities, 1, 0).own_entities())


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    base = tmp_path_factory.mktemp("ranks")
    cases = [*CASES.values()]
    found = {}
    for size in (2, 3):
        results = ranks.on_ranks(size, base / f"{size}", ranks.steps_of_all, cases)
        found[size] = dict(zip(CASES, zip(*results, strict=True), strict=True))
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_agree_with_one_process(sharded, size, case):
    one, found = ranks.steps_of_one(CASES[case]), sharded[size][case]
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
