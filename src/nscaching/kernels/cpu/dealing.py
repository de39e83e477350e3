"""Candidates of queries dealt to the ranks that own them, compiled for CPUs; see ``Visit``.

A message has for each query how many of its candidates the rank owns; then the rows of the
candidates; then the query vectors, whose bits are taken as whole numbers. Ranks are numbered in
the order in which messages stand one after the other.
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
def pack(owner, place, counts, owned, sent, query, starts, message):
    """Write the messages to all ranks, which have their starts [ranks] in ``message``."""
    ranks, size = owned.shape[1], query.shape[1]
    at = np.empty((3, ranks), np.int64)  # where counts, rows and vectors go
    for rank in range(ranks):
        at[0, rank], at[1, rank] = starts[rank], starts[rank] + sent[rank, 0]
        at[2, rank] = at[1, rank] + sent[rank, 1]
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
def unpack(message, got, q, starts, asking, place, query):
    """Read some messages, got [messages, 2]: queries and candidates of each.

    ``q`` queries have been read before. The q-th query has the places starts[q:q+2]; ``asking``
    has the query of each place.
    """
    start, p, size = 0, starts[q], query.shape[1]
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
def spread(owner, counts, starts, values, out):
    """Put numbers of the candidates [n, C] where those of each rank start in ``out``, in order."""
    at = starts.copy()
    for i in range(owner.shape[0]):
        for c in range(counts[i]):
            rank = owner[i, c]
            out[at[rank]] = values[i, c]
            at[rank] += 1


@njit(**COMPILE)
def gather(owner, counts, starts, found, values):
    """Put numbers that come back where their candidates are: the other way round."""
    at = starts.copy()
    for i in range(owner.shape[0]):
        for c in range(counts[i]):
            rank = owner[i, c]
            values[i, c] = found[at[rank]]
            at[rank] += 1


@njit(**COMPILE)
def add_up(owned, starts, parts, by_query):
    """Add the gradients by each query that come back from the ranks, rank by rank."""
    at = starts.copy()
    for i in range(owned.shape[0]):
        by_query[i] = 0
        for rank in range(owned.shape[1]):
            if owned[i, rank] > 0:
                add(by_query[i], parts[at[rank]])
                at[rank] += 1
