"""The refresh of the cache on every path, against a plain twin and exact chances."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from helpers import (
    SLOW,
    TWINS,
    WAYS,
    batch_of,
    fast_paths,
    fast_twins,
    for_twins,
    goodness,
    kept,
    kept_chances,
    new_kernels,
    new_model,
    new_sampler,
    paths,
    random_graph,
    random_steps,
    share,
    threads,
    twins,
)
from nscaching.data.index import Side
from nscaching.kernels import CacheSide, Learning
from nscaching.kernels.codes import KINDS
from nscaching.models import MODELS
from nscaching.models.bilinear import DistMult
from nscaching.settings import CacheSettings
from refreshes import STRATEGIES, Case, cases, one_case

sides = pytest.mark.parametrize("side", list(Side))
kinds = [
    (name, norm)
    for name in WAYS
    for norm in ((1, 2) if MODELS.get(name).family == "translational" else (1,))
]


@for_twins(15, kind=kinds, data=st.data())
def test_a_refresh_keeps_what_it_should(twin, kind, data):
    case = data.draw(cases(*kind, twin))
    case.check(case.refreshed("reference"))
    case.check(case.refreshed(twin))


@for_twins(6, kind=kinds, data=st.data())
def test_a_refresh_after_gradient_steps(twin, kind, data):
    case = data.draw(cases(*kind, twin, sizes=[1.0]))
    kernels = new_kernels(twin)
    learner = kernels.learner(case.model, Learning("margin", 4.0, 0.1, 0.01))
    case.check(case.refreshed(kernels))
    for batch, negatives in random_steps(case.model, [3, 5], seed=case.seed):
        learner.step(batch, negatives, torch.zeros(4, dtype=torch.float64))
    case.check(case.refreshed(kernels))
    # Another model than the one that learns.
    other = data.draw(cases(*kind, twin))
    other.check(other.refreshed(kernels))


@twins
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("refresh", STRATEGIES)
def test_next_to_no_row_differs(twin, name, refresh):
    keys = share(twin, 80)
    candidates = "set" if name < "TransE" else "slots"
    options = {"refresh": refresh, "candidates": candidates}
    case = one_case(10_000, keys, keys, name=name, norm=2, **options)
    asked = sum(len(key.unique()) for key in case.keys)
    after = case.refreshed(twin)
    assert case.check(after) >= 0.99 * asked
    equal = [
        (new == old).all(1) for new, old in zip(after, case.refreshed("reference"), strict=True)
    ]
    assert sum(rows.sum() for rows in equal) >= 0.99 * 2 * keys
    # The cache did change.
    assert any((new != c.ids).any() for new, c in zip(after, case.caches, strict=True))


@twins
@pytest.mark.parametrize("model", WAYS)
@pytest.mark.parametrize("learning", [False, True])
def test_rounded_rows(twin, model, learning):
    found = []
    for rounding in ("float32", "bfloat16"):
        case = one_case(batch=share(twin, 60), name=model, refresh="top", candidate_rows=rounding)
        for name, table in case.model.named_parameters():
            if name.startswith("entity"):  # so much alike that rounding changes their order
                table.data.copy_(table[:1] + 0.003 * table)
        kernels = new_kernels(twin)
        if learning:
            kernels.learner(case.model, Learning("margin", 4.0, 0.1, 0.0))
        found.append(case.refreshed(kernels))
        case.check(found[-1])
    assert any(not torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.skipif(not SLOW, reason="nothing is interpreted")
def test_the_interpreter_s_types_are_those_of_triton():
    import triton.language as tl
    from triton.runtime import interpreter

    mine = interpreter._get_np_dtype
    scalars = [tl.int1, tl.int8, tl.uint16, tl.int32, tl.uint32, tl.int64, tl.uint64]
    scalars += [tl.float16, tl.bfloat16, tl.float32, tl.float64, tl.pointer_type(tl.float32)]
    for scalar in scalars * 2:  # found, and found again
        for dtype in (scalar, tl.block_type(scalar, [4]), tl.block_type(scalar, [2, 8])):
            assert mine(dtype) == mine.__wrapped__(dtype)
    assert mine is not mine.__wrapped__


@pytest.mark.skipif(not SLOW, reason="nothing is interpreted")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_interpreter_sorts_as_triton_does(dtype):
    from interpreted import sorted_twice

    x = torch.randint(-9, 9, (32,), generator=torch.Generator().manual_seed(0)).to(dtype)
    x[3], x[20] = 2**31 - 1, -(2**31)
    mine, own = torch.zeros_like(x), torch.ones_like(x)
    sorted_twice[(1,)](x, mine, own, N=32)
    assert torch.equal(mine, own)
    assert torch.equal(mine, x.sort().values)


@paths
def test_order_and_repeats_of_keys_do_not_matter(path):
    case = one_case(batch=share(path, 9))
    once = case.refreshed(path)
    case.keys = [torch.cat([key.flip(0), torch.tensor([-1]), key]) for key in case.keys]
    for one, other in zip(once, case.refreshed(path), strict=True):
        assert torch.equal(one, other)


@paths
def test_no_keys(path):
    case = one_case()
    case.keys = [torch.tensor([-1, -1]), torch.empty(0, dtype=torch.int64)]
    for cache, after in zip(case.caches, case.refreshed(path), strict=True):
        assert torch.equal(cache.ids, after)


@paths
def test_seed_tick_and_side_decide(path):
    case = one_case(refresh="uniform", batch=share(path, 9))
    case.keys[1] = case.keys[0]
    one = case.caches[0]
    case.caches = [CacheSide(side, one.ids, one.anchor, one.relation) for side in Side]
    first = case.refreshed(path)
    assert not torch.equal(*first)
    assert torch.equal(first[0], case.refreshed(path)[0])
    for change in ({"seed": 8}, {"tick": 4}):
        assert not torch.equal(first[0], Case(**(vars(case) | change)).refreshed(path)[0])


@twins
@pytest.mark.parametrize("refresh", STRATEGIES)
def test_known_triples_are_kept_out(twin, refresh):
    graph = random_graph(entities=9, train=60)
    model, found = new_model("TransE", 9, 3), []
    for path in ("reference", twin):
        made = new_sampler(graph, kernels=new_kernels(path), refresh=refresh, filter_known=True)
        made.update(batch_of(graph), model)
        found.append(made.cache.rows)
    for side in Side:
        assert torch.equal(found[0][side], found[1][side])


# Scores of any size. The one number of an entity is its score.


def scored(values, cached, **settings):
    """Make the refresh of one key whose entities have the given scores, with rows after it."""
    model = new_model("DistMult", len(values), 1, dim=1)
    with torch.no_grad():
        model.entity.copy_(torch.tensor(values).unsqueeze(1))
        model.relation.fill_(1)
    ids = torch.tensor([cached] * 50, dtype=torch.int32)
    anchor, relation = torch.full((50,), values.index(1.0)), torch.zeros(50, dtype=torch.int64)
    cache = CacheSide(Side.TAIL, ids, anchor, relation)
    return Case(model, CacheSettings(n1=len(cached), **settings), [cache], [torch.tensor([0])])


@paths
def test_few_candidates_are_taken_again_in_turn(path):
    case = scored([1.0, 2.0, 3.0], [0] * 8, n2=12)
    assert len(case.offers(case.caches[0], 0)) == 3
    case.check(case.refreshed(path))


SIZES = [0.0, 1.0, 1.0000001, 1.5, 100.0, 1e-3, 1e-30, 1e10, 1e30, 1e38]


@for_twins(
    60,
    values=st.lists(st.sampled_from([*SIZES, *(-size for size in SIZES)]), min_size=3, max_size=12),
    refresh=STRATEGIES,
    n2=st.integers(1, 20),
    data=st.data(),
)
def test_scores_of_any_size(twin, values, refresh, n2, data):
    values = [1.0, *values]
    entity = st.integers(0, len(values) - 1)
    cached = data.draw(st.lists(entity, min_size=1, max_size=len(values)))
    candidates = data.draw(st.sampled_from(["set", "slots"]))
    case = scored(values, cached, n2=n2, refresh=refresh, candidates=candidates)
    case.check(case.refreshed("reference"))
    case.check(case.refreshed(twin))


far_apart = pytest.mark.parametrize(
    "values",
    [
        [1.0, 3e38, -3e38, 2e38, 1e38, 5.0],  # the difference of two is infinite
        [1.0, 2.0, float("-inf"), 0.5, 3.0, 4.0],
        [1.0, 2.0, float("inf"), 0.5, 3.0, 4.0],
    ],
)


@paths
@far_apart
def test_scores_too_far_apart(path, values):
    case = scored(values, [0, 2], n2=40, refresh="top")
    assert len(case.offers(case.caches[0], 0)) == len(values)
    after = case.refreshed(path)[0]
    assert torch.equal(after[1:], case.caches[0].ids[1:])
    assert set(after[0].tolist()) == {values.index(best) for best in sorted(values)[-2:]}


@paths
@pytest.mark.parametrize("refresh", STRATEGIES)
@pytest.mark.parametrize("candidates", ["set", "slots"])
def test_a_diverged_model_leaves_entities_in_the_cache(path, refresh, candidates):
    values = [1.0, float("nan"), float("inf"), 2.0, float("nan"), float("-inf"), 3.0]
    case = scored(values, [0, 1, 2], n2=9, refresh=refresh, candidates=candidates)
    after = case.refreshed(path)[0]
    assert torch.equal(after[1:], case.caches[0].ids[1:])
    assert set(after[0].tolist()) <= {entity for _, _, entity in case.offers(case.caches[0], 0)}


# Ids beyond what a float32 can tell apart.


@pytest.fixture(scope="module")
def many_entities():
    entities = 2**24 + 10
    model = DistMult(entities, 1, 1)
    with torch.no_grad():
        model.relation.fill_(1)
        model.entity.fill_(-1)  # an anchor of −1: the last entities have the largest scores
        model.entity[-9:, 0] = -torch.arange(2.0, 11)
    return model


@paths
@pytest.mark.parametrize("refresh", STRATEGIES)
@pytest.mark.parametrize("candidates", ["set", "slots"])
def test_large_ids(path, refresh, candidates, many_entities):
    last = many_entities.entities - 1
    rows = torch.stack([torch.arange(last - 8, last + 1), torch.arange(last - 8, last + 1).flip(0)])
    cache = CacheSide(Side.TAIL, rows.int(), torch.tensor([0, 1]), torch.tensor([0, 0]))
    config = CacheSettings(n1=9, n2=5, refresh=refresh, candidates=candidates)
    case = Case(many_entities, config, [cache], [torch.tensor([1, 0])])
    after = case.refreshed(path)
    case.check(after)
    if refresh == "top":
        assert after[0].sort(1).values.tolist() == [list(range(last - 8, last + 1))] * 2


# The chances of the paper.


@fast_paths
@sides
@pytest.mark.parametrize("candidates", ["set", "slots"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_importance_refresh_has_the_chances_of_the_paper(path, side, candidates, temperature):
    seen = kept(side, path, temperature=temperature, candidates=candidates)
    assert goodness(seen, kept_chances(temperature, candidates)) > 0.001
    assert goodness(seen, kept_chances(3 - temperature, candidates)) < 1e-9


@pytest.mark.parametrize("path", sorted(SLOW))
def test_a_slow_path_has_the_chances_of_the_paper(path):
    seen = kept(Side.TAIL, path)
    assert goodness(seen, kept_chances(1.0)) > 0.001
    assert goodness(seen, kept_chances(1.0, scores=torch.zeros(5))) < 1e-6


@fast_paths
@sides
@pytest.mark.parametrize("candidates", ["set", "slots"])
def test_uniform_refresh_does_not_look_at_scores(path, side, candidates):
    seen = kept(side, path, refresh="uniform", candidates=candidates)
    assert goodness(seen, kept_chances(1.0, candidates, torch.zeros(5))) > 0.001


@fast_twins  # an interpreter has one thread
@pytest.mark.parametrize("name", [*(kind.__name__ for kind in KINDS), "RotatE", "TransM"])
@pytest.mark.parametrize("learning", [False, True])
def test_threads_do_not_change_a_refresh(twin, name, learning):
    case = one_case(name=name)
    found = []
    for count in (1, 2):
        with threads(count):
            kernels = new_kernels(twin)
        if learning:
            kernels.learner(case.model, Learning("margin", 4.0, 0.1, 0.0))
        found.append(case.refreshed(kernels))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("twin", sorted(set(TWINS) - ({"triton"} - SLOW)))  # on a GPU it is a copy
@pytest.mark.parametrize("name", ["TransE", "TransH", "TransD", "ComplEx"])
def test_parameters_that_torch_changes_need_no_reload(twin, name):
    case, kernels = one_case(name=name, keys=6, batch=6, refresh="top"), new_kernels(twin)
    kernels.learner(case.model, Learning("logistic", 5.0, 0.01, 0.0))
    other = one_case(name=name, keys=6, batch=6).model
    case.model.load_state_dict({n: -3 * t.flip(0) for n, t in other.state_dict().items()})
    case.check(case.refreshed(kernels))
