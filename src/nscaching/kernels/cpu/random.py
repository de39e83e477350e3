"""``random`` compiled for CPUs: the same numbers, made where they are needed."""

from typing import Any

import numpy as np
from numba import njit

from nscaching.kernels import random

# For functions that Python calls: no Python lock; cached on disk; sums may be reordered, but
# infinities and NaN stay. Division by zero gives infinity as in numpy: a check for it would keep
# loops from vectorising.
COMPILE: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
}

# For functions that only compiled functions call. A function that is not inlined is a weak symbol
# of every module that uses the function; which module's code runs would depend on which modules
# were compiled and which came from the disk cache, and the last bits of sums with it.
INLINE = COMPILE | {"cache": False, "forceinline": True}

MIX_1, MIX_2 = np.uint32(random.MIX_1), np.uint32(random.MIX_2)
STEP_KEY, STEP_INDEX = np.uint32(random.STEP_KEY), np.uint32(random.STEP_INDEX)
ROTATIONS = random.ROTATIONS
HALF, UNIT = np.float32(0.5), np.float32(2**-23)
LOG_2 = np.float32(0.6931471805599453)

# Numba widens the results of 32-bit arithmetic; each is cut back, which costs nothing.


@njit(**INLINE)
def mix(x):
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * MIX_1)
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * MIX_2)
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(**INLINE)
def stream_of(start, key):
    return mix(np.uint32(start + np.uint32(np.uint32(key) * STEP_KEY)))


@njit(**INLINE)
def bits(stream, index):
    return mix(np.uint32(stream + np.uint32(np.uint32(index) * STEP_INDEX)))


@njit(**INLINE)
def log(x):
    """Return the logarithm of a positive, normal number within 6e-7; unlike libm's it vectorises.

    x = 2ᵉ·m with m in [√½, √2); log m = 2·artanh(s) with s = (m − 1)/(m + 1), as a polynomial.
    """
    whole = np.float32(x).view(np.int32)
    exponent = np.int32((whole - np.int32(0x3F3504F3)) >> np.int32(23))
    f = np.int32(whole - np.int32(exponent << np.int32(23))).view(np.float32) - np.float32(1)
    s = f / (np.float32(2) + f)
    z = s * s
    series = np.float32(0.28571429) + z * np.float32(0.22222222)
    series = z * (np.float32(0.66666667) + z * (np.float32(0.4) + z * series))
    return np.float32(exponent) * LOG_2 + (f - s * (f - series))


@njit(**INLINE)
def gumbel(random_bits):
    u = (np.float32(np.int32(random_bits >> np.uint32(9))) + HALF) * UNIT
    return -log(-log(u))


@njit(**INLINE)
def rotate(start, row, column, width, full, rest):
    """Turn places of a grid into what stands there in a random order; see ``random.rotated``."""
    for turn in range(ROTATIONS):
        stream = stream_of(start, turn)
        for j in range(row.size):
            if turn % 2 == 0:
                length = width if row[j] < full else rest
                column[j] = turned(column[j], length, bits(stream, row[j]))
            else:
                length = full + np.uint32(1) if column[j] < rest else full
                row[j] = turned(row[j], length, bits(stream, column[j]))


@njit(**INLINE)
def turned(place, length, random_bits):
    far = np.uint32((np.uint64(random_bits) * np.uint64(length)) >> np.uint64(32))
    place = np.uint32(place + far)
    return np.uint32(place - length) if place >= length else place
