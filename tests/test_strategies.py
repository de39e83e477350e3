"""Choosing columns by score: each strategy against its definition."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import chances, goodness
from nscaching.kernels.choose import repeated, select

SCORES = [0.5, -1.0, 2.0, 0.0]
DRAWS = 20_000
strategies = pytest.mark.parametrize("strategy", ["uniform", "importance", "top"])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def outcomes(strategy, count, temperature=1.0, scores=SCORES, excluded=None, seed=0):
    """Count the ordered choices of many independent rows."""
    many = torch.tensor(scores).repeat(DRAWS, 1)
    if excluded is not None:
        excluded = torch.tensor(excluded).repeat(DRAWS, 1)
    chosen = select(strategy, many, count, generator(seed), temperature, excluded)
    return Counter(map(tuple, chosen.tolist()))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_importance_is_softmax_without_replacement(temperature, count):
    seen = outcomes("importance", count, temperature)
    assert goodness(seen, chances(SCORES, count, temperature)) > 0.001
    wrong = 3 - temperature
    assert goodness(seen, chances(SCORES, count, wrong)) < 1e-9


def test_importance_of_scores_far_from_zero():
    far = [score - 300 for score in SCORES]  # exp(-300) is zero in single precision
    assert goodness(outcomes("importance", 2, scores=far), chances(SCORES, 2)) > 0.001


def test_importance_leaves_out_the_excluded():
    seen = outcomes("importance", 2, excluded=[False, False, True, False])
    expected = chances([0.5, -1.0, float("-inf"), 0.0], 2)
    assert goodness(seen, expected) > 0.001


@pytest.mark.parametrize("count", [1, 2, 4])
def test_uniform_does_not_look_at_scores(count):
    assert goodness(outcomes("uniform", count), chances([0, 0, 0, 0], count)) > 0.001


def test_top_is_the_largest_in_order():
    scores = torch.randn(50, 9, generator=generator())
    expected = scores.argsort(dim=1, descending=True)[:, :4]
    assert torch.equal(select("top", scores, 4, generator()), expected)
    best = expected[:, 0]
    excluded = torch.zeros(50, 9, dtype=torch.bool).scatter_(1, best.unsqueeze(1), True)
    chosen = select("top", scores, 4, generator(), excluded=excluded)
    assert torch.equal(chosen, scores.argsort(dim=1, descending=True)[:, 1:5])


@strategies
def test_seed_decides(strategy):
    scores = torch.randn(30, 9, generator=generator())
    first, again, other = (select(strategy, scores, 4, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (strategy == "top")


@strategies
def test_scores_are_left_as_they_were(strategy):
    scores = torch.randn(5, 6, generator=generator())
    before = scores.clone()
    excluded = scores > 0
    select(strategy, scores, 3, generator(), excluded=excluded)
    assert torch.equal(scores, before)
    assert torch.equal(excluded, before > 0)


@strategies
@given(
    rows=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6),
    count=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_a_row_is_always_full(strategy, rows, count, seed):
    excluded = torch.tensor(rows)
    scores = torch.randn(excluded.shape, generator=generator(seed))
    chosen = select(strategy, scores, count, generator(seed), excluded=excluded)
    assert chosen.shape == (len(rows), count)
    for marks, columns in zip(rows, chosen.tolist(), strict=True):
        allowed = {column for column in range(5) if not marks[column]}
        assert set(columns) <= (allowed or set(range(5)))
        # As many different columns as there are, each about as often as any other.
        times = Counter(columns)
        assert len(times) == min(count, max(1, len(allowed)))
        assert max(times.values()) - min(times.values()) <= 1


@given(
    rows=st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1, max_size=5
        )
    )
)
@settings(derandomize=True, deadline=None, max_examples=50)
def test_repeated_marks_all_but_the_first(rows):
    expected = [[value in row[:i] for i, value in enumerate(row)] for row in rows]
    assert repeated(torch.tensor(rows)).tolist() == expected
