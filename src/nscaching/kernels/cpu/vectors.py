"""Operations on vectors that other compiled loops are made of.

Each operation is a separate function: the compiler then makes good loops. No loop both stores and
sums: such a loop is compiled twice, where its arrays lie decides which version runs, and the last
bit of the sum would depend on it.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from nscaching.kernels.cpu.random import HALF, INLINE, LOG_2
from nscaching.models import MODULI

ZERO, ONE = np.float32(0), np.float32(1)
TINY = np.float32(1e-12)  # the least length that a vector is divided by
LEAST, PER_LOG_2 = np.float32(-87), np.float32(1.4426950408889634)  # of exponents; 1/log 2

# Rows are fetched this many candidates ahead, a cache line (of 16 numbers) at a time.
AHEAD, LINE = 8, 16


@intrinsic
def _prefetch(typing, table, row, column):
    """Ask for the cache line of table[row, column] before it is needed."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, list(args[1:]), wraparound=False
        )
        pointer = ir.PointerType(ir.IntType(8))
        flag = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(call, [builder.bitcast(place, pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp), generate


@njit(**INLINE)
def fetch(rows, row):
    for line in range(0, rows.shape[1], LINE):
        _prefetch(rows, np.intp(row), line)


@njit(**INLINE)
def _in_order(whole):
    """Turn the bits of a number into a whole number of the same order, and back."""
    return np.int32(whole ^ np.int32(np.int32(whole >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(**INLINE)
def most_of(values):
    """Return the largest number, as whole numbers, whose maximum vectorises."""
    whole = values.view(np.int32)
    most = _in_order(whole[0])
    for i in range(values.size):
        most = np.int32(max(most, _in_order(whole[i])))
    return np.int32(_in_order(most)).view(np.float32)


@njit(**INLINE)
def least_of(values):
    whole = values.view(np.int32)
    least = _in_order(whole[0])
    for i in range(values.size):
        least = np.int32(min(least, _in_order(whole[i])))
    return np.int32(_in_order(least)).view(np.float32)


@njit(**INLINE)
def exp(x):
    """Return eˣ within 3e-7 of it for x ≤ 0, and 0 below −87; unlike libm's it vectorises.

    eˣ = 2ⁿ·eʸ with |y| ≤ ½·log 2, and eʸ as a polynomial.
    """
    n = np.int32((x if x > LEAST else LEAST) * PER_LOG_2 - HALF)  # cuts towards zero
    y = x - np.float32(n) * LOG_2
    series = np.float32(1 / 24) + y * (np.float32(1 / 120) + y * np.float32(1 / 720))
    series = np.float32(0.5) + y * (np.float32(1 / 6) + y * series)
    series = ONE + y * (ONE + y * series)
    power = np.int32(np.int32(n + np.int32(127)) << np.int32(23)).view(np.float32)
    return ZERO if x < LEAST else power * series


@njit(**INLINE)
def sum_of(values):
    total = ZERO
    for c in range(values.size):
        total += values[c]
    return total


@njit(**INLINE)
def multiply(values, factor):
    for c in range(values.size):
        values[c] *= factor


@njit(**INLINE)
def exponentiate(values, shift):
    """Turn scores into exp(score + shift)."""
    for c in range(values.size):
        values[c] = exp(values[c] + shift)


@njit(**INLINE)
def log_1p(x):
    """Return log(1 + x) within 3e-7 of it for 0 ≤ x ≤ 1, by the series of 2·artanh(x / (2 + x))."""
    s = x / (x + np.float32(2))
    square = s * s
    series = np.float32(1 / 9) + square * np.float32(1 / 11)
    series = np.float32(1 / 5) + square * (np.float32(1 / 7) + square * series)
    return (s + s) * (ONE + square * (np.float32(1 / 3) + square * series))


@njit(**INLINE)
def add(total, part):
    for i in range(total.size):
        total[i] += part[i]


@njit(**INLINE)
def dot(a, b):
    total = ZERO
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(**INLINE)
def distance(a, b, norm):
    total = ZERO
    if norm == 1:
        for i in range(a.size):
            total += abs(a[i] - b[i])
        return total
    if norm == MODULI:
        half = a.size // 2
        for i in range(half):
            real, imaginary = a[i] - b[i], a[half + i] - b[half + i]
            total += np.sqrt(real * real + imaginary * imaginary)
        return total
    for i in range(a.size):
        difference = a[i] - b[i]
        total += difference * difference
    return np.sqrt(total)


@njit(**INLINE)
def times(a_re, a_im, b_re, b_im):
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


@njit(**INLINE)
def conj_times(a_re, a_im, b_re, b_im):
    return a_re * b_re + a_im * b_im, a_re * b_im - a_im * b_re
