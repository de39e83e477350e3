"""Random numbers that are a function of (seed, tick, purpose, key, index): no state, no order.

Every kernel can make them where it needs them, in any order and on any device, and they are the
same: the reference and its fast twins choose alike. The compiled twins of these functions are in
``cpu.random`` and ``gpu.random``.
"""

import math
from typing import TypeVar

import torch
from torch import Tensor

from nscaching.data.index import Side

# Purposes of the random numbers of a step; each side has its own for fresh candidates, for the
# noise that chooses among candidates, for walks through the graph, and for rows that are dealt.
PURPOSES = 15
COIN, ENTITY, SLOT, CHOICE, TAIL, ORDER, RIVAL = 0, 1, 2, 7, 8, 11, 12
FRESH, NOISE = {Side.HEAD: 3, Side.TAIL: 5}, {Side.HEAD: 4, Side.TAIL: 6}
WALK, DEAL = {Side.HEAD: 9, Side.TAIL: 10}, {Side.HEAD: 13, Side.TAIL: 14}

# A 32-bit mixing function: two odd multipliers between three shifts, each bit of the input flips
# half of the output's. Steps of odd constants keep tick, key and index apart before it.
MASK = 0xFFFFFFFF
MIX_1, MIX_2 = 0x7FEB352D, 0x846CA68B
STEP_SEED, STEP_TICK, STEP_KEY, STEP_INDEX = 0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F

Number = TypeVar("Number", Tensor, int)

SHUFFLES = 64  # rounds of a shuffle; each halves what its result has to do with the order before

ROTATIONS = 16  # of rows and columns of a grid, in turn; with 12 orders of a few numbers are uneven

# uint32 numbers are kept in int64 tensors: products wrap around, and their low half is right.


def mix(x: Number) -> Number:
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


def stream_start(seed: int, tick: int, purpose: int) -> int:
    """Return what ``stream`` returns, of a number that the CPU has."""
    first: int = mix((seed * STEP_SEED + purpose) & MASK)
    start: int = mix((first + tick * STEP_TICK) & MASK)
    return start


def bits(start: Tensor, key: Tensor, index: Tensor) -> Tensor:
    """Return 32 random bits for each key and index; their shapes broadcast."""
    return mix((mix((start + key * STEP_KEY) & MASK) + index * STEP_INDEX) & MASK)


def whole(random: Tensor, below: int | Tensor) -> Tensor:
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


def grid_width(count: int) -> int:
    """Return the columns of the grid of ``rotated``: an even number, so that odd orders occur."""
    return max(2, 2 * round(math.sqrt(count) / 2))


def rotated(start: Tensor, place: Tensor, count: int) -> Tensor:
    """Return which of 0 … count − 1 stands at some places of a random order, without the order.

    The numbers fill a grid, row by row. All rows are rotated, each by a random distance of its own,
    then all columns, and so on. That takes fewer rounds than ``shuffled``.
    """
    width = grid_width(count)
    full, rest = divmod(count, width)  # the last row is shorter, and so are columns beyond its end
    row, column = place // width, place % width
    turn = torch.arange(ROTATIONS, device=place.device)
    for each in range(ROTATIONS):
        along, across = (column, row) if each % 2 == 0 else (row, column)
        if each % 2 == 0:
            length = torch.where(across < full, width, rest)
        else:
            length = torch.where(across < rest, full + 1, full)
        along = along + ((bits(start, turn[each], across) * length) >> 32)
        along = torch.where(along >= length, along - length, along)
        row, column = (across, along) if each % 2 == 0 else (along, across)
    return row * width + column
