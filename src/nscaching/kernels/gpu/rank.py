"""Distances of all pairs and the counts behind a rank, compiled for GPUs."""

import triton
import triton.language as tl

from nscaching import models

MODULI = tl.constexpr(models.MODULI)
LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def measure(
    query, rows, q, e, n, E, D: tl.constexpr, NORM: tl.constexpr, QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Return ‖q − e‖ of queries q and rows e, in any order; query is [D, n] and rows [D, E].

    Products are fused with sums by name, not by the compiler: every kernel gets the same bits.
    """
    total = tl.zeros([QUERIES, ROWS], tl.float32)
    query += q
    rows += e
    # A pass takes one number of each, or with moduli one complex number: real and imaginary part.
    PASSES: tl.constexpr = D // 2 if NORM == MODULI else D
    far = tl.full([], D // 2, tl.int64)
    for _ in range(PASSES):
        difference = tl.load(query, q < n, 0.0)[:, None] - tl.load(rows, e < E, 0.0)[None, :]
        if NORM == MODULI:
            of_query = tl.load(query + far * n, q < n, 0.0)[:, None]
            imaginary = of_query - tl.load(rows + far * E, e < E, 0.0)[None, :]
            total += tl.sqrt(tl.fma(difference, difference, imaginary * imaginary))
        elif NORM == 1:
            total += tl.abs(difference)
        else:
            total = tl.fma(difference, difference, total)
        query += n
        rows += E
    if NORM == 2:
        total = tl.sqrt(total)
    return total


@triton.jit
def distances(
    query, rows, out, n, E,
    D: tl.constexpr, NORM: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Put ‖q − e‖ of a tile of pairs into out [n, E]; query is [D, n] and rows [D, E]."""
    q = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    e = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = measure(query, rows, q, e, n, E, D, NORM, QUERIES, ROWS)
    at = q.to(tl.int64)[:, None] * E + e[None, :]
    tl.store(out + at, total, (q < n)[:, None] & (e < E)[None, :])


@triton.jit
def own_score(
    query, rows, weight, out, n, E, D: tl.constexpr, NORM: tl.constexpr, HAS_WEIGHT: tl.constexpr
):
    """Put the score of query i and row i into out [n]."""
    i = tl.program_id(0) + tl.arange(0, 1)
    score = -measure(query, rows, i, i, n, E, D, NORM, 1, 1)
    if HAS_WEIGHT:
        score *= tl.load(weight + i)[:, None]
    tl.store(out + i[:, None], score)


@triton.jit
def stand(
    query, rows, weight, answer, targets, out, n, E, first,
    D: tl.constexpr, NORM: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    QUERIES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add to out [3, n] what ``count`` counts, of a tile of queries and entities first + e."""
    # Programs that come together share entities: the rows come from the GPU's cache.
    tiles = tl.cdiv(n, QUERIES)
    q = tl.program_id(0) % tiles * QUERIES + tl.arange(0, QUERIES)
    e = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    score = -measure(query, rows, q, e, n, E, D, NORM, QUERIES, ROWS)
    if HAS_WEIGHT:
        score *= tl.load(weight + q, q < n, 0.0)[:, None]
    target = tl.load(targets + q, q < n, 0.0)[:, None]
    right = tl.load(answer + q, q < n, 0)[:, None]
    inside = (e < E)[None, :]
    other = inside & (first + e[None, :] != right)
    # The three counts of a row of the tile are summed in one number.
    found = (other & (score > target)).to(tl.int32)
    found += (other & (score == target)).to(tl.int32) << 10
    found += (inside & ((tl.abs(score) <= LARGEST) == 0)).to(tl.int32) << 20
    sums = tl.sum(found, 1)
    for kind in tl.static_range(3):
        counted = (sums >> (10 * kind)) & 1023
        at = out + kind * n + q
        tl.atomic_add(at, counted.to(tl.int64), (q < n) & (counted > 0), sem="relaxed")


@triton.jit
def take_known(
    query, rows, weight, answer, targets, known_start, known_end, known, out, n, E, first,
    D: tl.constexpr, NORM: tl.constexpr, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take what ``stand`` counted of a query's known answers, entities first + e, from out."""
    i = tl.program_id(0) + tl.arange(0, 1)
    right = tl.load(answer + i)[:, None]
    target = tl.load(targets + i)[:, None]
    begin = tl.load(known_start + tl.program_id(0)) + tl.program_id(1) * BLOCK
    end = tl.load(known_end + tl.program_id(0))
    for start in range(begin, end, tl.num_programs(1) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        e = tl.load(known + place, place < end, 0) - first
        e = tl.where(place < end, e, E)  # which is no row
        score = -measure(query, rows, i, e, n, E, D, NORM, 1, BLOCK)
        if HAS_WEIGHT:
            score *= tl.load(weight + i)[:, None]
        other = (e < E)[None, :] & (first + e[None, :] != right)
        above = tl.sum((other & (score > target)).to(tl.int64), 1)
        level = tl.sum((other & (score == target)).to(tl.int64), 1)
        tl.atomic_add(out + i, -above, above > 0, sem="relaxed")
        tl.atomic_add(out + n + i, -level, level > 0, sem="relaxed")


@triton.jit
def slopes(
    weight, query, rows, out, n, E,
    D: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr, QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Put the sum of weight·∂‖q − e‖/∂q over some rows into out [parts, n, D].

    weight is [E, n], query [n, D], rows [E, D]; in norm 2 the weight is divided by the distance.
    """
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    part = tl.program_id(1)
    d = tl.arange(0, BLOCK)
    SIZE: tl.constexpr = D // 2 if NORM == MODULI else D
    at = q.to(tl.int64)[:, None] * D + d[None, :]
    inside = (q < n)[:, None] & (d < SIZE)[None, :]
    x = tl.load(query + at, inside, 0.0)
    total = tl.zeros([QUERIES, BLOCK], tl.float32)
    if NORM == MODULI:
        x_im = tl.load(query + at + SIZE, inside, 0.0)
        total_im = tl.zeros([QUERIES, BLOCK], tl.float32)
    for e in range(part * ROWS, tl.minimum(E, part * ROWS + ROWS)):
        at_e = tl.full([], 1, tl.int64) * e
        w = tl.load(weight + at_e * n + q, q < n, 0.0)[:, None]
        difference = x - tl.load(rows + at_e * D + d, d < SIZE, 0.0)[None, :]
        if NORM == 1:
            sign = tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, 0.0))
            total += w * sign
        elif NORM == 2:
            total += w * difference
        else:
            imaginary = x_im - tl.load(rows + at_e * D + SIZE + d, d < SIZE, 0.0)[None, :]
            modulus = tl.sqrt(difference * difference + imaginary * imaginary)
            scale = tl.where(modulus > 0, w / tl.where(modulus > 0, modulus, 1.0), 0.0)
            total += scale * difference
            total_im += scale * imaginary
    out += part.to(tl.int64) * n * D
    tl.store(out + at, total, inside)
    if NORM == MODULI:
        tl.store(out + at + SIZE, total_im, inside)


@triton.jit
def shifted_distances(
    query, direction, rows, along, row_squares, direction_squares, shift, n, E,
    D: tl.constexpr, NORM: tl.constexpr, UNIT: tl.constexpr, HAS_SHIFT: tl.constexpr,
    QUERIES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Put −‖q − c·(e + s·v)‖ of a tile of pairs where v·e was, in along [n, E].

    query and direction are [D, n], rows [D, E]. The shift s belongs to the entity or is −v·e;
    c is one, or with UNIT makes the shifted row a unit vector.
    """
    q = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    e = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = along + q.to(tl.int64)[:, None] * E + e[None, :]
    inside = (q < n)[:, None] & (e < E)[None, :]
    product = tl.load(at, inside, 0.0)
    if HAS_SHIFT:
        s = tl.load(shift + e, e < E, 0.0)[None, :] + tl.zeros([QUERIES, ROWS], tl.float32)
    else:
        s = -product
    c = tl.full([QUERIES, ROWS], 1.0, tl.float32)
    if UNIT:
        square = tl.load(row_squares + e, e < E, 0.0)[None, :] + 2.0 * s * product
        square += s * s * tl.load(direction_squares + q, q < n, 0.0)[:, None]
        c = 1.0 / tl.sqrt(tl.maximum(square, 1e-24))
    s *= c
    total = tl.zeros([QUERIES, ROWS], tl.float32)
    query += q
    direction += q
    rows += e
    for _ in range(D):
        shifted = c * tl.load(rows, e < E, 0.0)[None, :]
        shifted += s * tl.load(direction, q < n, 0.0)[:, None]
        difference = tl.load(query, q < n, 0.0)[:, None] - shifted
        query += n
        direction += n
        rows += E
        if NORM == 1:
            total += tl.abs(difference)
        else:
            total += difference * difference
    if NORM == 2:
        total = tl.sqrt(total)
    tl.store(at, -total, inside)


@triton.jit
def count(
    scores, answer, targets, known_start, known_end, known, out, n, E, begin, BLOCK: tl.constexpr
):
    """Count scores above the answer's, equal to it, and non-finite in one row; out is [3, n].

    Column j is entity begin + j.
    """
    i = tl.program_id(0)
    row = scores + i.to(tl.int64) * E
    lane = tl.arange(0, BLOCK)
    right = tl.load(answer + i) - begin
    target = tl.load(targets + i)
    above = tl.zeros([BLOCK], tl.int32)
    level = tl.zeros([BLOCK], tl.int32)
    wrong = tl.zeros([BLOCK], tl.int32)
    for start in range(0, E, BLOCK):
        e = start + lane
        score = tl.load(row + e, e < E, float("-inf"))
        above += ((e < E) & (score > target) & (e != right)).to(tl.int32)
        level += ((e < E) & (score == target) & (e != right)).to(tl.int32)
        finite = tl.abs(score) <= LARGEST
        wrong += ((e < E) & (finite == 0)).to(tl.int32)
    first = tl.load(known_start + i)
    last = tl.load(known_end + i)
    for start in range(first, last, BLOCK):
        inside = start + lane < last
        e = tl.load(known + start + lane, inside, begin) - begin
        score = tl.load(row + e, inside, float("-inf"))
        other = inside & (e != right)
        above -= (other & (score > target)).to(tl.int32)
        level -= (other & (score == target)).to(tl.int32)
    tl.store(out + i, tl.sum(above, 0).to(tl.int64))
    tl.store(out + n + i, tl.sum(level, 0).to(tl.int64))
    tl.store(out + 2 * n + i, tl.sum(wrong, 0).to(tl.int64))
