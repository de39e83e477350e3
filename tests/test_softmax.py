"""The cached softmax: its estimate, its cache, its tail, and what goes with it."""

from __future__ import annotations

import pytest

from helpers import TINY, new_sampler, random_graph
from nscaching import ProbeConfig, UserError, train
from nscaching.data.index import Side

GRAPH = random_graph(entities=40, train=90, valid=20, test=20)


def test_cached_rows_ascend_from_the_start():
    sampler = new_sampler(GRAPH, objective="softmax", n1=6)
    for side in Side:
        for row in sampler.cache.rows[side].tolist():
            assert row == sorted(set(row))


@pytest.mark.parametrize(
    ("probes", "settings", "message"),
    [
        ({"probe_repeats": 1}, {}, "probe_repeats: objective softmax draws no single negatives"),
        ({"probe_changes": True}, {"n1": 0}, "probe_changes: n1 0 keeps no cache"),
        ({"snapshots": (1,)}, {"n1": 0}, "snapshots: n1 0 keeps no cache"),
    ],
)
def test_probes_that_would_see_nothing(probes, settings, message):
    config = TINY | settings | {"objective": "softmax"}
    with pytest.raises(UserError, match=f"^{message}$"):
        train(GRAPH, probes=ProbeConfig(**probes), **config)


def test_a_softmax_caches_sets():
    message = "^objective softmax caches each entity once: leave out candidates slots$"
    with pytest.raises(UserError, match=message):
        train(GRAPH, **TINY, objective="softmax", candidates="slots")
