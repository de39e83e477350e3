"""Random numbers that are a function of (seed, tick, purpose, key, index): no state, no order.

Every kernel can make them where it needs them, in any order and on any device, and they are the
same: the reference and its fast twins choose alike. The compiled twins of these functions are in
``cpu.random`` and ``gpu.random``.
"""

import torch
from torch import Tensor

from nscaching.data.index import Side

# Purposes of the random numbers of a step; each side has its own for fresh candidates, and for the
# noise that chooses among candidates.
PURPOSES = 9
COIN, ENTITY, SLOT, CHOICE, TAIL = 0, 1, 2, 7, 8
FRESH, NOISE = {Side.HEAD: 3, Side.TAIL: 5}, {Side.HEAD: 4, Side.TAIL: 6}

# A 32-bit mixing function: two odd multipliers between three shifts, each bit of the input flips
# half of the output's. Steps of odd constants keep tick, key and index apart before it.
MASK = 0xFFFFFFFF
MIX_1, MIX_2 = 0x7FEB352D, 0x846CA68B
STEP_SEED, STEP_TICK, STEP_KEY, STEP_INDEX = 0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F

SHUFFLES = 64  # rounds of a shuffle; each halves what its result has to do with the order before

# uint32 numbers are kept in int64 tensors: products wrap around, and their low half is right.


def mix(x: Tensor) -> Tensor:
    x = x ^ (x >> 16)
    x = (x * MIX_1) & MASK
    x = x ^ (x >> 15)
    x = (x * MIX_2) & MASK
    return x ^ (x >> 16)


def stream(seed: int, tick: Tensor, purpose: int) -> Tensor:
    """Return the start [] of the random numbers of one purpose in one step, which ``tick`` [] is.

    The start is made in two rounds, so that seeds and purposes next to each other have no more
    in common than any others.
    """
    # Filled where it is wanted: a CUDA graph cannot record a copy from the host.
    first = torch.full((), (seed * STEP_SEED + purpose) & MASK, device=tick.device)
    return mix((mix(first) + tick * STEP_TICK) & MASK)


def bits(start: Tensor, key: Tensor, index: Tensor) -> Tensor:
    """Return 32 random bits for each key and index; their shapes broadcast."""
    return mix((mix((start + key * STEP_KEY) & MASK) + index * STEP_INDEX) & MASK)


def whole(random: Tensor, below: int) -> Tensor:
    """Turn random bits into whole numbers 0 … below − 1 (below < 2³¹)."""
    return (random * below) >> 32


def uniform(random: Tensor) -> Tensor:
    """Turn random bits into numbers inside (0, 1): 2⁻²⁴ is the least, 1 − 2⁻²⁴ the largest."""
    return ((random >> 9).float() + 0.5) * 2**-23


def gumbel(random: Tensor) -> Tensor:
    return -(-uniform(random).log()).log()


def shuffled(start: Tensor, place: Tensor, below: int) -> Tensor:
    """Return which of 0 … below − 1 stands at some places of a random order, without the order.

    Swap-or-not (Hoang, Morris and Rogaway, 2012): in every round each number has a partner, and a
    coin of the pair says whether the two change places.
    """
    first = torch.zeros((), dtype=torch.int64, device=place.device)
    rounds = torch.arange(SHUFFLES, device=place.device)
    for each, pivot in zip(rounds, whole(bits(start, rounds, first), below), strict=True):
        partner = (pivot - place) % below
        pair = torch.maximum(place, partner)
        place = torch.where(bits(start, each, 1 + pair) >> 31 == 1, partner, place)
    return place
