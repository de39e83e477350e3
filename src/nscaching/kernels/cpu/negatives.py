"""Queries and their true and false answers, compiled for CPUs: scores, losses and slopes."""

import numpy as np
from numba import njit

from nscaching.kernels.cpu import meeting
from nscaching.kernels.cpu.random import COMPILE, INLINE
from nscaching.kernels.cpu.step import sigmoid, softplus
from nscaching.kernels.cpu.vectors import (
    ONE,
    ZERO,
    exp,
    exponentiate,
    log_1p,
    most_of,
    multiply,
    sum_of,
)  # fmt: skip


@njit(**INLINE)
def score_row(form, norm, weight, q, rows, ids, values):
    meeting.score(form, norm, q, rows, ids, values)
    multiply(values, weight)


@njit(**COMPILE)
def score(begin, end, form, norm, weights, query, rows, candidates, out):
    """Score the candidates [B, C] of the queries [begin:end] → out [B, C]."""
    for i in range(begin, end):
        score_row(form, norm, weights[i], query[i], rows, candidates[i], out[i])


@njit(**INLINE)
def differentiate(is_margin, margin, shift, adversarial, values, share, terms):
    """Turn the scores of a true answer and of false ones into slopes.

    Returns the loss, and the part of the loss that false answers have. See ``losses``.
    """
    true, false, factor = values[0] + shift, values[1:], np.float32(adversarial)
    share[:] = 1
    if adversarial > 0:
        for k in range(false.size):
            share[k] = factor * false[k]
        exponentiate(share, -most_of(share))
        multiply(share, ONE / sum_of(share))
    if is_margin:
        for k in range(false.size):
            loss = margin - true + false[k]
            terms[k] = ZERO if loss <= 0 else share[k] * loss  # unlike max, which hides NaN
            false[k] = share[k] if loss > 0 else ZERO
        total = sum_of(terms)
        values[0] = -sum_of(false)
        return total, total
    for k in range(false.size):
        x = false[k] + shift
        power = exp(-abs(x))  # unlike libm's functions this vectorises
        terms[k] = share[k] * (max(x, ZERO) + log_1p(power))
        false[k] = share[k] * (ONE if x >= 0 else power) / (ONE + power)
    total = sum_of(terms)
    values[0] = -sigmoid(-true)
    return softplus(-true) + total, total


@njit(**INLINE)
def compare_row(is_margin, margin, shift, adversarial, zero, weight, ids, values, share, terms):
    """Turn the scores of a query's candidates into slopes of the loss by unweighted scores.

    Returns the loss, and whether it still teaches.
    """
    loss, of_false = differentiate(is_margin, margin, shift, adversarial, values, share, terms)
    for k in range(1, ids.size):  # a negative that is the positive: so that both cancel
        if ids[k] == ids[0]:
            values[0] += values[k]
            values[k] = ZERO
    multiply(values, weight)
    return loss, of_false > zero


@njit(**INLINE)
def pull_row(form, norm, penalised, q, rows, ids, slopes, active, by_query):
    """Sum slope·∂f by a query; say which candidates have a gradient, and whether the query has."""
    some = penalised
    for k in range(ids.size):
        active[k] = slopes[k] != 0
        some |= active[k]
    by_query[:] = 0
    meeting.pull(form, norm, slopes, q, rows, ids, by_query)
    return some


@njit(**COMPILE)
def contrast(
    begin, end, form, norm, is_margin, margin, shift, adversarial, logistic_zero, penalised,
    weights, query, rows, candidates, slopes, losses, teaching, active, anchor_active, by_query,
):  # fmt: skip
    """Compare the queries [begin:end] with candidates [B, 1 + K]: the true answer, false ones.

    slopes [B, 1 + K] become the slopes of the losses [B] by the unweighted scores; the rest is
    as in ``pull``.
    """
    room = np.empty((2, candidates.shape[1] - 1), np.float32)
    zero = ZERO if is_margin else np.float32(logistic_zero)
    how = is_margin, np.float32(margin), np.float32(shift), adversarial, zero
    for i in range(begin, end):
        q, ids, values = query[i], candidates[i], slopes[i]
        score_row(form, norm, weights[i], q, rows, ids, values)
        losses[i], teaching[i] = compare_row(*how, weights[i], ids, values, room[0], room[1])
        anchor_active[i] = pull_row(
            form, norm, penalised, q, rows, ids, values, active[i], by_query[i]
        )


@njit(**COMPILE)
def compare(
    begin, end, is_margin, margin, shift, adversarial, logistic_zero, penalised, weights,
    candidates, slopes, losses, teaching, anchor_active,
):  # fmt: skip
    """Compare as ``contrast`` does, by scores [B, 1 + K] from elsewhere, which become slopes."""
    room = np.empty((2, candidates.shape[1] - 1), np.float32)
    zero = ZERO if is_margin else np.float32(logistic_zero)
    how = is_margin, np.float32(margin), np.float32(shift), adversarial, zero
    for i in range(begin, end):
        ids, values = candidates[i], slopes[i]
        multiply(values, weights[i])
        losses[i], teaching[i] = compare_row(*how, weights[i], ids, values, room[0], room[1])
        anchor_active[i] = penalised
        for k in range(ids.size):
            anchor_active[i] |= values[k] != 0


@njit(**COMPILE)
def pull(
    begin, end, form, norm, penalised, query, rows, candidates, slopes, active, anchor_active,
    by_query,
):  # fmt: skip
    """Sum slope·∂f by the queries [begin:end] → by_query [B, D].

    active [B, C] says which candidates have a gradient, anchor_active [B] which queries have.
    """
    for i in range(begin, end):
        anchor_active[i] = pull_row(
            form, norm, penalised, query[i], rows, candidates[i], slopes[i], active[i],
            by_query[i],
        )  # fmt: skip
