"""Refreshes of the cache that are about to happen, and what has to come of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import itemgetter

import torch
from hypothesis import strategies as st

from helpers import SLOW, new_kernels, new_model
from nscaching.data.index import Side
from nscaching.kernels import CacheAccess, CacheSide, random
from nscaching.kernels.reference import FRESH, NOISE
from nscaching.models import Model
from nscaching.settings import CacheSettings

STRATEGIES = ["importance", "top", "uniform"]


@dataclass
class Case:
    """A refresh that is about to happen."""

    model: Model
    settings: CacheSettings
    caches: list[CacheSide]
    keys: list[torch.Tensor]
    seed: int = 7
    tick: int = 3

    def refreshed(self, path):
        """Return what a path, or kernels that exist already, make of the caches."""
        kernels = new_kernels(path) if isinstance(path, str) else path
        caches = [CacheSide(c.side, c.ids.clone(), c.anchor, c.relation) for c in self.caches]
        tick = torch.tensor(self.tick)
        kernels.refresh(CacheAccess(caches, self.keys, self.model, self.settings, self.seed, tick))
        return [cache.ids for cache in caches]

    @torch.no_grad()
    def offers(self, cache, key):
        """Return [(value, slot, entity)] of a key's candidates; the largest values survive."""
        settings, at = self.settings, torch.tensor([key])

        def bits(purpose, key, index):
            start = random.stream(self.seed, torch.tensor(self.tick), purpose)
            return random.bits(start, torch.as_tensor(key), index)

        slot = torch.arange(settings.n1 + settings.n2)
        owner = 0 if settings.shared_candidates else key
        fresh = bits(FRESH[cache.side], owner, slot[settings.n1 :])
        ids = torch.cat([cache.ids[key].long(), random.whole(fresh, self.model.entities)])
        rounding = torch.bfloat16 if settings.candidate_rows == "bfloat16" else None
        asked = (cache.side, cache.anchor[at], cache.relation[at], ids.unsqueeze(0), rounding)
        value = self.model.score_candidates(*asked)[0] / settings.temperature
        is_set = settings.candidates == "set"
        noise = random.gumbel(bits(NOISE[cache.side], key, ids if is_set else slot))
        value = {"importance": value + noise, "top": value, "uniform": noise}[settings.refresh]
        found = list(zip(value.tolist(), slot.tolist(), ids.tolist(), strict=True))
        if is_set:  # in ascending order, each entity once
            found = list({each[2]: each for each in sorted(found, key=itemgetter(2))}.values())
        return found

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
        offers, n1 = self.offers(cache, key), self.settings.n1
        if len(offers) < n1:  # all are kept, and taken again in turn
            times = Counter(row)
            assert set(times) == {entity for _, _, entity in offers}
            assert max(times.values()) - min(times.values()) <= 1
            return True
        in_order = iter([entity for _, _, entity in offers])
        assert all(entity in in_order for entity in row), "not offered, or in another order"
        ranked = sorted(offers, reverse=True)
        best = set(ranked[:n1])
        if row == [offer[2] for offer in offers if offer in best]:
            return True
        # Of an entity in several slots, the best are kept.
        left, missing, instead = Counter(row), [], []
        for place, (value, _, entity) in enumerate(ranked):
            is_kept = left[entity] > 0
            left[entity] -= is_kept
            if is_kept and place >= n1:
                instead.append(value)
            elif not is_kept and place < n1:
                missing.append(value)
        if missing:
            worse, better = min(instead), max(missing)
            assert better - worse <= 1e-4 * max(1, abs(better), abs(worse))
        return False


@st.composite
def cases(draw, name, norm, path="reference", sizes=(0.0, 1e-3, 1.0, 1e3)):
    """Make refreshes of all kinds; cached rows may repeat an entity.

    Of the sizes of entity vectors, zero makes all scores equal.
    """
    most, many = (5, 3) if path in SLOW else (13, 8)

    def integer(least, most):
        return draw(st.integers(least, most))

    entities, relations, keys = integer(1, 3 * most), integer(1, 3), integer(1, many)
    settings = {
        "n1": draw(st.sampled_from([entities, integer(1, most)])),
        "n2": integer(1, most),
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
                  ids(relations, keys))
        for side in Side
    ]  # fmt: skip
    batches = [ids(keys, integer(0, many), least=-1) for _ in Side]
    return Case(model, CacheSettings(**settings), caches, batches, seed, integer(0, 2**40))


def one_case(entities=60, keys=40, batch=60, n1=11, n2=8, name="DistMult", norm=1, **settings):
    """Make a refresh of ordinary size."""
    generator = torch.Generator().manual_seed(5)

    def ids(below, *shape):
        return torch.randint(below, shape, generator=generator)

    caches = [
        CacheSide(side, ids(entities, keys, n1).int(), ids(entities, keys), ids(3, keys))
        for side in Side
    ]  # fmt: skip
    model = new_model(name, entities, 3, 12, norm)
    config = CacheSettings(n1=n1, n2=n2, **settings)
    return Case(model, config, caches, [ids(keys, batch) for _ in Side])
