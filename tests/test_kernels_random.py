"""Random numbers that are a function of seed, tick, purpose, key and index."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy import stats

from nscaching.kernels import random
from nscaching.kernels.cpu import random as compiled

plenty = settings(derandomize=True, deadline=None, max_examples=200)
MOST = 2**32 - 1
word = st.sampled_from([0, 1, 2**31, MOST]) | st.integers(0, MOST)


def plain_mix(x):
    """Mix a whole number of Python, which never overflows."""
    x ^= x >> 16
    x = x * random.MIX_1 & MOST
    x ^= x >> 15
    x = x * random.MIX_2 & MOST
    return x ^ x >> 16


def plain_bits(seed, tick, purpose, key, index):
    start = plain_mix((seed * random.STEP_SEED + purpose) & MOST)
    start = plain_mix((start + tick * random.STEP_TICK) & MOST)
    start = plain_mix((start + key * random.STEP_KEY) & MOST)
    return plain_mix((start + index * random.STEP_INDEX) & MOST)


def torch_bits(seed, tick, purpose, key, index):
    start = random.stream(seed, torch.tensor(tick), purpose)
    return random.bits(start, torch.as_tensor(key), torch.as_tensor(index))


@given(
    seed=st.integers(0, 2**42),
    tick=st.integers(0, 2**42),
    purpose=st.integers(0, 6),
    key=st.integers(0, 2**31 - 1),
    index=st.integers(0, 2**31 - 1),
)
@plenty
def test_bits(seed, tick, purpose, key, index):
    expected = plain_bits(seed, tick, purpose, key, index)
    assert torch_bits(seed, tick, purpose, key, index).item() == expected
    start = np.uint32(random.stream(seed, torch.tensor(tick), purpose).item())
    assert compiled.bits(compiled.stream_of(start, key), np.uint32(index)) == expected


@given(bits=word, below=st.integers(1, 2**31 - 1))
@plenty
def test_whole_numbers(bits, below):
    got = random.whole(torch.tensor(bits), below).item()
    assert got == bits * below // 2**32
    assert 0 <= got < below


def test_uniform_numbers_lie_inside():
    ends = random.uniform(torch.tensor([0, 511, 512, MOST - 511, MOST]))
    assert ends.tolist() == [2**-24, 2**-24, 3 * 2**-24, 1 - 2**-24, 1 - 2**-24]


@njit
def compiled_gumbel(bits, out):
    for i in range(bits.size):
        out[i] = compiled.gumbel(bits[i])


def test_gumbel_noise():
    some = np.arange(0, 2**32, 2**9 * 7, dtype=np.uint64)  # the last nine bits are not used
    bits = np.append(some, [1, 511, MOST - 511, MOST]).astype(np.uint32)
    got = random.gumbel(torch.from_numpy(bits.astype(np.int64))).numpy()
    fast = np.empty_like(got)
    compiled_gumbel(bits, fast)
    exact = -np.log(-np.log(((bits >> 9) + 0.5) * 2.0**-23))
    assert exact.min() < -2.8
    assert exact.max() > 16.6
    for values in (got, fast):
        assert np.isfinite(values).all()
        np.testing.assert_allclose(values, exact, rtol=3e-7, atol=3e-7)
    np.testing.assert_allclose(fast, got, rtol=1e-6, atol=1e-6)


ARGUMENTS = ["seed", "tick", "purpose", "key", "index"]
arguments = pytest.mark.parametrize("changing", ARGUMENTS)


def consecutive(changing, count=1 << 14, **others):
    """Return the bits of consecutive values of one argument."""
    values = {"seed": 2, "tick": 5, "purpose": 4, "key": 70, "index": 11} | others
    if changing in ("key", "index"):
        values[changing] = torch.arange(values[changing], values[changing] + count)
        return torch_bits(**values).numpy()
    first = values[changing]
    return np.array(
        [plain_bits(**values | {changing: value}) for value in range(first, first + count)]
    )


@arguments
def test_consecutive_bits_are_uniform(changing):
    bits = consecutive(changing)
    for shift in (0, 9, 24):  # the last bits, the last that count, the first
        seen = np.bincount(bits >> shift & 63, minlength=64)
        assert stats.chisquare(seen).pvalue > 0.001
    pairs = (bits[:-1] >> 28 << 4 | bits[1:] >> 28)[::2]  # neighbours, each number in one pair
    assert stats.chisquare(np.bincount(pairs, minlength=256)).pvalue > 0.001


@arguments
def test_neighbours_have_nothing_in_common(changing):
    if changing == "index":
        one, other = (consecutive("key", index=index) for index in (11, 12))
    else:
        first = {"seed": 2, "tick": 5, "purpose": 4, "key": 70}[changing]
        one, other = (consecutive("index", **{changing: first + step}) for step in (0, 1))
    # Of 32 bits, half differ: each in every second number, independently of the others.
    differ = (one ^ other)[:, None] >> np.arange(32) & 1
    n = len(differ)
    assert abs(differ.mean(0) - 0.5).max() < 4.5 * 0.5 / n**0.5
    assert differ.sum(1).var() == pytest.approx(8, rel=0.1)
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / n**0.5
    # Nor is one the other a few places on.
    for lag in range(-3, 4):
        assert (np.roll(one, lag) == other).mean() < 0.001
