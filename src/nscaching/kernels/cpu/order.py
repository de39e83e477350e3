"""The order of the training triples, and candidates of samples, compiled for CPUs."""

import numpy as np
from numba import njit

from nscaching.kernels.cpu.random import COMPILE, rotate

BLOCK = 256  # places at once: their rows and columns stay in a core's cache


@njit(**COMPILE)
def take(begin, end, columns, start, first, width, out):
    """Put row numbers and columns [k, n] of the places first + [begin:end] into out [1 + k, B]."""
    n = columns.shape[1]
    full, rest = np.uint32(n // width), np.uint32(n % width)
    row, column = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    for low in range(begin, end, BLOCK):
        size = min(BLOCK, end - low)
        for j in range(size):
            row[j] = (first + low + j) // width
            column[j] = (first + low + j) % width
        rotate(start, row[:size], column[:size], np.uint32(width), full, rest)
        for j in range(size):
            out[0, low + j] = np.int64(row[j]) * width + column[j]
        for k in range(columns.shape[0]):
            for j in range(low, low + size):
                out[1 + k, j] = columns[k, out[0, j]]


@njit(**COMPILE)
def sample(begin, end, starts, below, width, out):
    """Put the first places of a random order of 0 … below − 1, one for each start, into out."""
    full, rest = np.uint32(below // width), np.uint32(below % width)
    row, column = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    for i in range(begin, end):
        for low in range(0, out.shape[1], BLOCK):
            size = min(BLOCK, out.shape[1] - low)
            for j in range(size):
                row[j], column[j] = (low + j) // width, (low + j) % width
            rotate(starts[i], row[:size], column[:size], np.uint32(width), full, rest)
            for j in range(size):
                out[i, low + j] = np.int64(row[j]) * width + column[j]
