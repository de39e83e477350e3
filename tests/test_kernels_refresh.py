"""The refresh of the cache on every path, against a plain twin and exact chances."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from hypothesis import strategies as st

from helpers import (
    MANY,
    for_twins,
    goodness,
    kept,
    kept_chances,
    new_kernels,
    new_model,
    paths,
    random_steps,
    share,
    threads,
    twins,
)
from nscaching import TrainConfig
from nscaching.graph import Side
from nscaching.kernels import (
    HEAD_FRESH,
    HEAD_NOISE,
    TAIL_FRESH,
    TAIL_NOISE,
    CacheSide,
    Learning,
    random,
)
from nscaching.models import MODELS, Model
from nscaching.models.distmult import DistMult

PURPOSES = {Side.HEAD: (HEAD_FRESH, HEAD_NOISE), Side.TAIL: (TAIL_FRESH, TAIL_NOISE)}
STRATEGIES = ["importance", "top", "uniform"]
sides = pytest.mark.parametrize("side", list(Side))


@dataclass
class Case:
    """A refresh that is about to happen."""

    model: Model
    config: TrainConfig
    caches: list[CacheSide]
    keys: list[torch.Tensor]
    seed: int = 7
    tick: int = 3

    def refreshed(self, path):
        """Return what a path, or kernels that exist already, make of the caches."""
        kernels = new_kernels(path) if isinstance(path, str) else path
        caches = [
            CacheSide(c.side, c.ids.clone(), c.anchor, c.relation, c.fresh, c.noise)
            for c in self.caches
        ]
        tick = torch.tensor(self.tick)
        kernels.refresh(caches, self.keys, self.model, self.config, self.seed, tick)
        return [cache.ids for cache in caches]

    @torch.no_grad()
    def offers(self, cache, key):
        """Return [(value, entity)] of the candidates of a key: those with the largest survive."""
        config, at = self.config, torch.tensor([key])

        def bits(purpose, key, index):
            start = random.stream(self.seed, torch.tensor(self.tick), purpose)
            return random.bits(start, torch.as_tensor(key), index)

        slot = torch.arange(config.n1 + config.n2)
        owner = 0 if config.shared_candidates else key
        fresh = bits(cache.fresh, owner, slot[config.n1 :])
        ids = torch.cat([cache.ids[key].long(), random.whole(fresh, self.model.entities)])
        rounding = torch.bfloat16 if config.candidate_rows == "bfloat16" else None
        asked = (cache.side, cache.anchor[at], cache.relation[at], ids.unsqueeze(0), rounding)
        value = self.model.score_candidates(*asked)[0] / config.temperature
        noise = random.gumbel(bits(cache.noise, key, ids if config.candidates == "set" else slot))
        value = {"importance": value + noise, "top": value, "uniform": noise}[config.refresh]
        found = list(zip(value.tolist(), ids.tolist(), strict=True))
        if config.candidates == "set":
            found = list({entity: (value, entity) for value, entity in found}.values())
        return sorted(found, reverse=True)

    def check(self, after):
        """Check caches after a refresh; return how many rows hold just what they should.

        Elsewhere candidates as good as equal, which rounding may swap, have changed places.
        """
        exact = 0
        for cache, keys, new in zip(self.caches, self.keys, after, strict=True):
            assert new.dtype == torch.int32
            asked = set(keys.tolist()) - {-1}
            rest = [key for key in range(len(new)) if key not in asked]
            assert torch.equal(new[rest], cache.ids[rest])
            exact += sum(self._check_row(cache, key, new[key].tolist()) for key in asked)
        return exact

    def _check_row(self, cache, key, row):
        offers, n1, times = self.offers(cache, key), self.config.n1, Counter(row)
        if len(offers) < n1:  # all are kept, and taken again in turn
            assert set(times) == {entity for _, entity in offers}
            assert max(times.values()) - min(times.values()) <= 1
            return True
        assert times <= Counter(entity for _, entity in offers), "not offered, or too often"
        # Of an entity in several slots, the best are kept.
        left, swapped_in = Counter(times), []
        missing = []
        for place, (value, entity) in enumerate(offers):
            is_kept = left[entity] > 0
            left[entity] -= is_kept
            if is_kept and place >= n1:
                swapped_in.append(value)
            elif not is_kept and place < n1:
                missing.append(value)
        if missing:
            worst, best = min(swapped_in), max(missing)
            assert best - worst <= 1e-4 * max(1, abs(best), abs(worst))
        return not missing


@st.composite
def cases(draw, name, norm, sizes=(0.0, 1e-3, 1.0, 1e3)):
    """Make refreshes of all kinds; cached rows may repeat an entity.

    Of the sizes of entity vectors, zero makes all scores equal.
    """

    def integer(least, most):
        return draw(st.integers(least, most))

    entities, relations, keys = integer(1, 40), integer(1, 3), integer(1, 6)
    settings = {
        "n1": draw(st.sampled_from([entities, integer(1, 13)])),
        "n2": integer(1, 13),
        "refresh": draw(st.sampled_from(STRATEGIES)),
        "candidates": draw(st.sampled_from(["set", "slots"])),
        "shared_candidates": draw(st.booleans()),
        "temperature": draw(st.sampled_from([0.25, 1.0, 3.0])),
        "candidate_rows": draw(st.sampled_from(["float32", "bfloat16"])),
    }
    seed = integer(0, 999)
    generator = torch.Generator().manual_seed(seed)

    def ids(below, *shape, least=0):
        return torch.randint(least, below, shape, generator=generator)

    model = new_model(name, entities, relations, integer(1, 9), norm, seed)
    with torch.no_grad():
        model.entity.mul_(draw(st.sampled_from(sizes)))
    caches = [
        CacheSide(side, ids(entities, keys, settings["n1"]).int(), ids(entities, keys),
                  ids(relations, keys), *PURPOSES[side])
        for side in Side
    ]  # fmt: skip
    batches = [ids(keys, integer(0, 8), least=-1) for _ in Side]
    return Case(model, TrainConfig(**settings), caches, batches, seed, integer(0, 2**40))


kinds = [(name, norm) for name in MODELS.names() for norm in (1, 2)]


@for_twins(30, kind=kinds, data=st.data())
def test_a_refresh_keeps_what_it_should(twin, kind, data):
    case = data.draw(cases(*kind))
    case.check(case.refreshed("reference"))
    case.check(case.refreshed(twin))


@for_twins(10, kind=kinds, data=st.data())
def test_a_refresh_after_gradient_steps(twin, kind, data):
    case = data.draw(cases(*kind, sizes=[1.0]))
    kernels = new_kernels(twin)
    learner = kernels.learner(case.model, Learning("margin", 4.0, 0.1, 0.01))
    case.check(case.refreshed(kernels))
    for batch, negatives in random_steps(case.model, [3, 5], seed=case.seed):
        learner.step(batch, negatives, torch.zeros(3, dtype=torch.float64))
    case.check(case.refreshed(kernels))
    # Another model than the one that learns.
    other = data.draw(cases(*kind))
    other.check(other.refreshed(kernels))


def one_case(entities=60, keys=40, batch=60, n1=11, n2=8, name="DistMult", norm=1, **settings):
    """Make a refresh of ordinary size."""
    generator = torch.Generator().manual_seed(5)

    def ids(below, *shape):
        return torch.randint(below, shape, generator=generator)

    caches = [
        CacheSide(side, ids(entities, keys, n1).int(), ids(entities, keys), ids(3, keys),
                  *PURPOSES[side])
        for side in Side
    ]  # fmt: skip
    model = new_model(name, entities, 3, 12, norm)
    config = TrainConfig(n1=n1, n2=n2, **settings)
    return Case(model, config, caches, [ids(keys, batch) for _ in Side])


@twins
@pytest.mark.parametrize("name", MODELS.names())
@pytest.mark.parametrize("refresh", STRATEGIES)
def test_next_to_no_row_differs(twin, name, refresh):
    keys = share(twin, 400)
    case = one_case(400, keys, keys, name=name, norm=2, refresh=refresh)
    asked = sum(len(key.unique()) for key in case.keys)
    after = case.refreshed(twin)
    assert case.check(after) >= 0.99 * asked
    equal = [
        (new.sort(1).values == old.sort(1).values).all(1)
        for new, old in zip(after, case.refreshed("reference"), strict=True)
    ]
    assert sum(rows.sum() for rows in equal) >= 0.99 * 2 * keys
    # The cache did change.
    assert any((new != c.ids).any() for new, c in zip(after, case.caches, strict=True))


@paths
def test_order_and_repeats_of_keys_do_not_matter(path):
    case = one_case(batch=9)
    once = case.refreshed(path)
    case.keys = [torch.cat([key.flip(0), torch.tensor([-1]), key]) for key in case.keys]
    for one, other in zip(once, case.refreshed(path), strict=True):
        assert torch.equal(one.sort(1).values, other.sort(1).values)


@paths
def test_no_keys(path):
    case = one_case()
    case.keys = [torch.tensor([-1, -1]), torch.empty(0, dtype=torch.int64)]
    for cache, after in zip(case.caches, case.refreshed(path), strict=True):
        assert torch.equal(cache.ids, after)


@paths
def test_seed_tick_and_side_decide(path):
    case = one_case(refresh="uniform", batch=9)
    case.keys[1] = case.keys[0]
    one = case.caches[0]
    case.caches = [
        CacheSide(side, one.ids, one.anchor, one.relation, *PURPOSES[side]) for side in Side
    ]
    first = case.refreshed(path)
    assert not torch.equal(*(after.sort(1).values for after in first))
    assert torch.equal(first[0], case.refreshed(path)[0])
    for change in ({"seed": 8}, {"tick": 4}):
        other = Case(**(vars(case) | change)).refreshed(path)
        assert not torch.equal(first[0].sort(1).values, other[0].sort(1).values)


# Scores of any size. The one number of an entity is its score.


def scored(values, cached, **settings):
    """Make the refresh of one key whose entities have the given scores."""
    model = new_model("DistMult", len(values), 1, dim=1)
    with torch.no_grad():
        model.entity.copy_(torch.tensor(values).unsqueeze(1))
        model.relation.fill_(1)
    anchor = torch.tensor([values.index(1.0)])
    cache = CacheSide(
        Side.TAIL, torch.tensor([cached], dtype=torch.int32), anchor, torch.tensor([0]),
        *PURPOSES[Side.TAIL],
    )  # fmt: skip
    config = TrainConfig(n1=len(cached), **settings)
    return Case(model, config, [cache], [torch.tensor([0])])


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
    best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:2]
    assert {entity for _, entity in case.offers(case.caches[0], 0)} == set(range(len(values)))
    assert set(case.refreshed(path)[0][0].tolist()) == set(best)


@paths
@pytest.mark.parametrize("refresh", STRATEGIES)
@pytest.mark.parametrize("candidates", ["set", "slots"])
def test_a_diverged_model_leaves_entities_in_the_cache(path, refresh, candidates):
    values = [1.0, float("nan"), float("inf"), 2.0, float("nan"), float("-inf"), 3.0]
    case = scored(values, [0, 1, 2], n2=9, refresh=refresh, candidates=candidates)
    offered = {entity for _, entity in case.offers(case.caches[0], 0)}
    assert set(case.refreshed(path)[0][0].tolist()) <= offered


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
    cache = CacheSide(
        Side.TAIL, rows.int(), torch.tensor([0, 1]), torch.tensor([0, 0]), *PURPOSES[Side.TAIL]
    )
    config = TrainConfig(n1=9, n2=5, refresh=refresh, candidates=candidates)
    case = Case(many_entities, config, [cache], [torch.tensor([1, 0])])
    after = case.refreshed(path)
    case.check(after)
    if refresh == "top":
        assert after[0].sort(1).values.tolist() == [list(range(last - 8, last + 1))] * 2


# The chances of the paper, on every path.


@paths
@sides
@pytest.mark.parametrize("candidates", ["set", "slots"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_importance_refresh_has_the_chances_of_the_paper(path, side, candidates, temperature):
    options = {"temperature": temperature, "candidates": candidates}
    seen = kept(side, new_kernels(path), share(path, MANY), **options)
    assert goodness(seen, kept_chances(temperature, candidates)) > 0.001
    if sum(seen.values()) == MANY:  # enough to tell another temperature
        assert goodness(seen, kept_chances(3 - temperature, candidates)) < 1e-9


@paths
@sides
@pytest.mark.parametrize("candidates", ["set", "slots"])
def test_uniform_refresh_does_not_look_at_scores(path, side, candidates):
    options = {"refresh": "uniform", "candidates": candidates}
    seen = kept(side, new_kernels(path), share(path, MANY), **options)
    assert goodness(seen, kept_chances(1.0, candidates, torch.zeros(5))) > 0.001


@twins
@pytest.mark.parametrize("name", MODELS.names())
@pytest.mark.parametrize("learning", [False, True])
def test_threads_do_not_change_a_refresh(twin, name, learning):
    case = one_case(name=name, batch=share(twin, 60))
    found = []
    for count in (1, 2):
        with threads(count):
            kernels = new_kernels(twin)
        if learning:
            kernels.learner(case.model, Learning("margin", 4.0, 0.1, 0.0))
        found.append(case.refreshed(kernels))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
