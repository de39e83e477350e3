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
