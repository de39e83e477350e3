"""Candidates of queries dealt to the ranks that own them, compiled for CPUs; see ``Visit``.

A message to a rank has, for each query with candidates there, how many these are; then the rows of
the candidates; then the query vectors, whose bits are taken as whole numbers.
"""

import numpy as np
from numba import njit

from nscaching.kernels.cpu.meeting import score
from nscaching.kernels.cpu.negatives import pull_row
from nscaching.kernels.cpu.random import COMPILE
from nscaching.kernels.cpu.vectors import add


@njit(**COMPILE)
def deal(ids, counts, owner_of, first_of, owner, place, owned, sent):
    """Say which rank owns the candidates ids[i, :counts[i]] of each query, and in which row.

    owned [n, ranks] counts the candidates of each query, sent [ranks, 2] queries and candidates.
    """
    blocks, ranks = np.uint32(owner_of.size), owned.shape[1]
    owned[:] = 0
    sent[:] = 0
    for i in range(ids.shape[0]):
        for c in range(counts[i]):
            entity = np.uint32(ids[i, c])
            within = np.uint32(entity // blocks)
            block = np.uint32(entity - np.uint32(within * blocks))
            rank = owner_of[block]
            owner[i, c], place[i, c] = rank, first_of[block] + np.int32(within)
            owned[i, rank] += 1
        for rank in range(ranks):
            sent[rank, 0] += owned[i, rank] > 0
            sent[rank, 1] += owned[i, rank]


@njit(**COMPILE)
def pack(owner, place, counts, owned, sent, query, message):
    """Write the messages to all ranks, one after the other."""
    ranks, size, start = owned.shape[1], query.shape[1], 0
    at = np.empty((3, ranks), np.int64)  # where counts, rows and vectors go
    for rank in range(ranks):
        at[0, rank], at[1, rank] = start, start + sent[rank, 0]
        at[2, rank] = at[1, rank] + sent[rank, 1]
        start = at[2, rank] + sent[rank, 0] * size
    for i in range(owner.shape[0]):
        for c in range(counts[i]):
            rank = owner[i, c]
            message[at[1, rank]] = place[i, c]
            at[1, rank] += 1
        for rank in range(ranks):
            if owned[i, rank] > 0:
                message[at[0, rank]] = owned[i, rank]
                at[0, rank] += 1
                for j in range(size):
                    message[at[2, rank] + j] = query[i, j]
                at[2, rank] += size


@njit(**COMPILE)
def unpack(message, got, starts, asking, place, query):
    """Read the messages of all ranks, got [ranks, 2]: queries and candidates of each.

    The candidates of the q-th query have the places starts[q:q+2]; ``asking`` names their queries.
    """
    start, q, p, size = 0, 0, 0, query.shape[1]
    starts[0] = 0
    for rank in range(got.shape[0]):
        queries, pairs = got[rank, 0], got[rank, 1]
        vectors = start + queries + pairs
        place[p : p + pairs] = message[start + queries : vectors]
        for i in range(queries):
            starts[q + 1] = starts[q] + message[start + i]
            for at in range(starts[q], starts[q + 1]):
                asking[at] = q
            for j in range(size):
                query[q, j] = message[vectors + i * size + j]
            q += 1
        p += pairs
        start = vectors + queries * size


@njit(**COMPILE)
def scores(begin, end, form, norm, query, rows, starts, place, out):
    for q in range(begin, end):
        first, last = starts[q], starts[q + 1]
        score(form, norm, query[q], rows, place[first:last], out[first:last])


@njit(**COMPILE)
def pull(begin, end, form, norm, query, rows, starts, place, slopes, active, by_query):
    """Sum slope·∂f by the queries [begin:end]; say which candidates have a gradient."""
    for q in range(begin, end):
        first, last = starts[q], starts[q + 1]
        some = place[first:last], slopes[first:last], active[first:last], by_query[q]
        pull_row(form, norm, False, query[q], rows, *some)


@njit(**COMPILE)
def spread(owner, counts, sent, values, out):
    """Put numbers of the candidates [n, C] in the order in which candidates are sent."""
    at = _starts(sent[:, 1])
    for i in range(owner.shape[0]):
        for c in range(counts[i]):
            rank = owner[i, c]
            out[at[rank]] = values[i, c]
            at[rank] += 1


@njit(**COMPILE)
def gather(owner, counts, sent, found, values):
    """Put numbers that come back where their candidates are, ``values`` [n, C]."""
    at = _starts(sent[:, 1])
    for i in range(owner.shape[0]):
        for c in range(counts[i]):
            rank = owner[i, c]
            values[i, c] = found[at[rank]]
            at[rank] += 1


@njit(**COMPILE)
def add_up(owned, sent, parts, by_query):
    """Add the gradients by each query that come back from the ranks, rank by rank."""
    at = _starts(sent[:, 0])
    for i in range(owned.shape[0]):
        by_query[i] = 0
        for rank in range(owned.shape[1]):
            if owned[i, rank] > 0:
                add(by_query[i], parts[at[rank]])
                at[rank] += 1


@njit(**COMPILE)
def _starts(sizes):
    starts = np.zeros(sizes.size, np.int64)
    for rank in range(1, sizes.size):
        starts[rank] = starts[rank - 1] + sizes[rank - 1]
    return starts
