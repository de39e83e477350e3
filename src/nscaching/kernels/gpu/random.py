"""``random`` compiled for GPUs: the same numbers, made where they are needed."""

import triton
import triton.language as tl

from nscaching.kernels import random

MIX_1, MIX_2 = tl.constexpr(random.MIX_1), tl.constexpr(random.MIX_2)
STEP_TICK = tl.constexpr(random.STEP_TICK)
ROTATIONS = tl.constexpr(random.ROTATIONS)
STEP_KEY, STEP_INDEX = tl.constexpr(random.STEP_KEY), tl.constexpr(random.STEP_INDEX)


@triton.jit
def mix(x):
    x = x ^ (x >> 16)
    x = x * MIX_1
    x = x ^ (x >> 15)
    x = x * MIX_2
    return x ^ (x >> 16)


@triton.jit
def start_of(seeds, purpose, tick):
    """Return the start of one purpose's numbers; seeds [purposes] are mixed already."""
    return start_at(seeds, purpose, tl.load(tick))


@triton.jit
def start_at(seeds, purpose, number):
    seed = tl.load(seeds + purpose).to(tl.uint32)
    return mix(seed + number.to(tl.uint32) * STEP_TICK)


@triton.jit
def stream_of(start, key):
    return mix(start + key.to(tl.uint32) * STEP_KEY)


@triton.jit
def bits(stream, index):
    return mix(stream + index.to(tl.uint32) * STEP_INDEX)


@triton.jit
def fill(seeds, tick, out, size, count, PURPOSE: tl.constexpr, BLOCK: tl.constexpr):
    """Write random bits for all keys and indices: out [keys, count], ``size`` numbers in all."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key, index = place // count, place % count
    made = bits(stream_of(start_of(seeds, PURPOSE, tick), key), index)
    tl.store(out + place, made.to(tl.int64), place < size)


@triton.jit
def uniform(random_bits):
    return ((random_bits >> 9).to(tl.float32) + 0.5) * (1.0 / 8388608)


@triton.jit
def log(x):
    """Return the logarithm of positive, normal numbers within 6e-7.

    The GPU's own is far off next to 1, where the largest noise comes from.
    """
    whole = x.to(tl.int32, bitcast=True)
    exponent = (whole - 0x3F3504F3) >> 23
    f = (whole - (exponent << 23)).to(tl.float32, bitcast=True) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = 0.28571429 + z * 0.22222222
    series = z * (0.66666667 + z * (0.4 + z * series))
    return exponent.to(tl.float32) * 0.6931471805599453 + (f - s * (f - series))


@triton.jit
def gumbel(random_bits):
    return -log(-log(uniform(random_bits)))


@triton.jit
def rotated(start, place, count, width, BLOCK: tl.constexpr):
    """Return which of 0 … count − 1 stands at places [BLOCK] of a random order."""
    full = count // width
    rest = count % width
    row = place // width
    column = place % width
    zero = tl.zeros([BLOCK], tl.int32)
    for each in range(0, ROTATIONS, 2):
        length = zero + tl.where(row < full, width, rest)
        column += turned(bits(stream_of(start, zero + each), row), length)
        column = tl.where(column >= length, column - length, column)
        length = zero + tl.where(column < rest, full + 1, full)
        row += turned(bits(stream_of(start, zero + (each + 1)), column), length)
        row = tl.where(row >= length, row - length, row)
    return row * width + column


@triton.jit
def turned(random_bits, length):
    return tl.umulhi(random_bits, length.to(tl.uint32)).to(tl.int32)
