"""Scores, loss and gradients of triples with one negative each, compiled for GPUs.

Gradients are by normalized rows, as on CPUs (``cpu.step``). They are summed as whole numbers, in
units of 2⁻³⁶: such sums do not depend on the order in which thousands of programs add to them, so
the same seed gives the same run, bit for bit. Adam divides by a gradient's size plus 1e-8; the
unit is a thousandth of that.
"""

import triton
import triton.language as tl

from nscaching.kernels.gpu.forms import COMPLEX, DISTMULT, TRANSD, TRANSE, TRANSH, conj_times, times
from nscaching.kernels.gpu.slots import slot_of

UNITS = tl.constexpr(float(2**36))
# The most that a program adds to a gradient at once: a row has room for 2¹⁵ such sums. (A batch
# with many negatives may add more, but sums so large occur only where a training diverges.)
MOST = tl.constexpr(float(2**12))


@triton.jit
def add_whole(total, part, mask):
    units = (tl.minimum(tl.maximum(part, -MOST), MOST) * UNITS).to(tl.int64)
    tl.atomic_add(total, units, mask, sem="relaxed")


@triton.jit
def project(row, shift, v, KIND: tl.constexpr):
    """Return P(e), s and c of P(e) = c·(e + s·v)."""
    projected = row
    s = 0.0
    scale = 1.0
    if KIND == TRANSH:
        s = -tl.sum(row * v, 0)
        projected = row + s * v
    elif KIND == TRANSD:
        s = shift
        projected = row + s * v
        scale = 1.0 / tl.maximum(tl.sqrt(tl.sum(projected * projected, 0)), 1e-12)
        projected *= scale
    return projected, s, scale


@triton.jit
def project_back(g, projected, s, scale, row, v, KIND: tl.constexpr):
    """Take the gradient g by P(e) back: return those by e, by v and by s."""
    by_row = g
    by_v = g * 0.0
    by_shift = 0.0
    if KIND == TRANSH:
        along = tl.sum(g * v, 0)
        by_row = g - along * v
        by_v = s * g - along * row
    elif KIND == TRANSD:
        by_row = scale * (g - tl.sum(g * projected, 0) * projected)
        by_v = s * by_row
        by_shift = tl.sum(by_row * v, 0)
    return by_row, by_v, by_shift


@triton.jit
def slope_of(difference, score, by_score, NORM: tl.constexpr):
    """Return by_score·∂f by the difference, with f = −‖difference‖."""
    if NORM == 1:
        sign = tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, 0.0))
        slope = -by_score * sign
    else:
        slope = difference * tl.where(score < 0, by_score / score, 0.0)
    return slope


@triton.jit
def length(difference, NORM: tl.constexpr):
    sizes = tl.abs(difference) if NORM == 1 else difference * difference
    return tl.sum(sizes, 0) if NORM == 1 else tl.sqrt(tl.sum(sizes, 0))


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def learn(positive, negative, margin, zero, LOGISTIC: tl.constexpr):
    """Return loss, whether it teaches something, and its derivatives by both scores."""
    if LOGISTIC:
        wrong = softplus(negative)
        loss = softplus(-positive) + wrong
        teaching = wrong > zero
        up = -1.0 / (1.0 + tl.exp(positive))
        down = 1.0 / (1.0 + tl.exp(-negative))
    else:
        loss = margin - positive + negative
        loss = tl.where(loss <= 0, 0.0, loss)  # unlike the maximum, which hides NaN
        teaching = loss > 0
        down = tl.where(teaching, 1.0, 0.0)
        up = -down
    return loss, teaching, up, down


@triton.jit
def complex_back(slope, H, H_im, R, R_im, T, T_im):
    """Return slope·∂f of ComplEx: the real parts by h, r and t, then the imaginary parts."""
    by_h, by_h_im = conj_times(R, R_im, T, T_im)
    by_r, by_r_im = conj_times(H, H_im, T, T_im)
    by_t, by_t_im = times(H, H_im, R, R_im)
    return (
        slope * by_h, slope * by_r, slope * by_t,
        slope * by_h_im, slope * by_r_im, slope * by_t_im,
    )  # fmt: skip


@triton.jit
def by_entity(new_head, by_h, by_t, by_x, by_y):
    """Return the gradients by head, tail and the other entity, which is head x or tail y."""
    to_h = tl.where(new_head, by_h, by_h + by_x)
    to_t = tl.where(new_head, by_t + by_y, by_t)
    return to_h, to_t, tl.where(new_head, by_x, by_y)


@triton.jit
def gradients(
    head, relation, tail, false_head, false_tail,
    rows, shift, relations, directions, g_rows, g_shift, g_relations, g_directions,
    slots, owners, relation_owners, losses, teachings, margin, zero,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, NORM: tl.constexpr,
    COMPACT: tl.constexpr, LOGISTIC: tl.constexpr,
):  # fmt: skip
    """Score one triple and its negative, and add their gradients in the slots of their rows."""
    i = tl.program_id(0)
    h, t = tl.load(head + i).to(tl.int64), tl.load(tail + i).to(tl.int64)
    r = tl.load(relation + i).to(tl.int64)
    x, y = tl.load(false_head + i).to(tl.int64), tl.load(false_tail + i).to(tl.int64)
    new_head = x != h
    other = tl.where(new_head, x, y)  # the entity that is not in the positive
    same = other == tl.where(new_head, h, t)  # … unless the negative is the positive
    HALF: tl.constexpr = D // 2
    END: tl.constexpr = HALF if KIND == COMPLEX else D
    d = tl.arange(0, BLOCK)
    inside = d < END
    H = tl.load(rows + h * D + d, inside, 0.0)
    T = tl.load(rows + t * D + d, inside, 0.0)
    Z = tl.load(rows + other * D + d, inside, 0.0)
    R = tl.load(relations + r * D + d, inside, 0.0)
    X = tl.where(new_head, Z, H)
    Y = tl.where(new_head, T, Z)

    if KIND == DISTMULT:
        positive = tl.sum(H * R * T, 0)
        negative = tl.sum(X * R * Y, 0)
    elif KIND == COMPLEX:
        H_im = tl.load(rows + h * D + HALF + d, inside, 0.0)
        T_im = tl.load(rows + t * D + HALF + d, inside, 0.0)
        Z_im = tl.load(rows + other * D + HALF + d, inside, 0.0)
        R_im = tl.load(relations + r * D + HALF + d, inside, 0.0)
        X_im = tl.where(new_head, Z_im, H_im)
        Y_im = tl.where(new_head, T_im, Z_im)
        true_re, true_im = times(H, H_im, R, R_im)
        false_re, false_im = times(X, X_im, R, R_im)
        positive = tl.sum(true_re * T + true_im * T_im, 0)
        negative = tl.sum(false_re * Y + false_im * Y_im, 0)
    else:
        V = R if KIND == TRANSE else tl.load(directions + r * D + d, inside, 0.0)
        s_h = tl.load(shift + h) if KIND == TRANSD else 0.0
        s_t = tl.load(shift + t) if KIND == TRANSD else 0.0
        s_o = tl.load(shift + other) if KIND == TRANSD else 0.0
        p_h, s_h, c_h = project(H, s_h, V, KIND)
        p_t, s_t, c_t = project(T, s_t, V, KIND)
        p_o, s_o, c_o = project(Z, s_o, V, KIND)
        difference = p_h + R - p_t
        false = tl.where(new_head, p_o + R - p_t, p_h + R - p_o)
        positive, negative = -length(difference, NORM), -length(false, NORM)

    loss, teaching, up, down = learn(positive, negative, margin, zero, LOGISTIC)
    up, down = tl.where(same, up + down, up), tl.where(same, 0.0, down)
    tl.store(losses + i, loss)
    tl.store(teachings + i, teaching.to(tl.float32))
    active = tl.abs(up) + tl.abs(down) > 0
    inside = inside & (tl.abs(up) + tl.abs(down) + tl.zeros([BLOCK], tl.float32) > 0)
    h_slot = slot_of(slots, owners, h, 3 * i, active, COMPACT)
    t_slot = slot_of(slots, owners, t, 3 * i + 1, active, COMPACT)
    o_slot = slot_of(slots, owners, other, 3 * i + 2, active, COMPACT)
    slot_of(relation_owners, relation_owners, r, r, active, False)

    if KIND == DISTMULT:
        by_h, by_t, by_o = by_entity(new_head, up * R * T, up * H * R, down * R * Y, down * X * R)
        by_r = up * H * T + down * X * Y
    elif KIND == COMPLEX:
        by_h, by_r, by_t, h_im, r_im, t_im = complex_back(up, H, H_im, R, R_im, T, T_im)
        by_x, of_r, by_y, x_im, of_r_im, y_im = complex_back(down, X, X_im, R, R_im, Y, Y_im)
        by_h, by_t, by_o = by_entity(new_head, by_h, by_t, by_x, by_y)
        h_im, t_im, o_im = by_entity(new_head, h_im, t_im, x_im, y_im)
        by_r += of_r
        add_whole(g_rows + h_slot * D + HALF + d, h_im, inside)
        add_whole(g_rows + t_slot * D + HALF + d, t_im, inside)
        add_whole(g_rows + o_slot * D + HALF + d, o_im, inside)
        add_whole(g_relations + r * D + HALF + d, r_im + of_r_im, inside)
    else:
        slope = slope_of(difference, positive, up, NORM)
        false_slope = slope_of(false, negative, down, NORM)
        by_r = slope + false_slope
        # The gradients by the projections: a tail enters with a minus.
        to_h, to_t, to_o = by_entity(new_head, slope, -slope, false_slope, -false_slope)
        by_h, v_h, of_h = project_back(to_h, p_h, s_h, c_h, H, V, KIND)
        by_t, v_t, of_t = project_back(to_t, p_t, s_t, c_t, T, V, KIND)
        by_o, v_o, of_o = project_back(to_o, p_o, s_o, c_o, Z, V, KIND)
        if KIND != TRANSE:
            add_whole(g_directions + r * D + d, v_h + v_t + v_o, inside)
        if KIND == TRANSD:
            add_whole(g_shift + h_slot, of_h, active)
            add_whole(g_shift + t_slot, of_t, active)
            add_whole(g_shift + o_slot, of_o, active)

    add_whole(g_rows + h_slot * D + d, by_h, inside)
    add_whole(g_rows + t_slot * D + d, by_t, inside)
    add_whole(g_rows + o_slot * D + d, by_o, inside)
    add_whole(g_relations + r * D + d, by_r, inside)


# The nuclear 3-norm penalty.


@triton.jit
def penalise_row(
    row, table, gradient, slot, strength,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Add λ·∂|x|³ = 3λ·|x|·x; numbers of ComplEx have their imaginary halves behind the real."""
    HALF: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)
    inside = d < (HALF if KIND == COMPLEX else D)
    X = tl.load(table + row * D + d, inside, 0.0)
    size = tl.abs(X)
    if KIND == COMPLEX:
        X_im = tl.load(table + row * D + HALF + d, inside, 0.0)
        size = tl.sqrt(X * X + X_im * X_im)
        add_whole(gradient + slot * D + HALF + d, 3 * strength * size * X_im, inside)
    add_whole(gradient + slot * D + d, 3 * strength * size * X, inside)


@triton.jit
def penalise(
    head, relation, tail, rows, relations, g_rows, g_relations,
    slots, owners, relation_owners, first, strength,
    D: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, COMPACT: tl.constexpr,
):  # fmt: skip
    """Add the penalty of a triple; the places of heads and tails begin at ``first``."""
    i = tl.program_id(0)
    h, t = tl.load(head + i).to(tl.int64), tl.load(tail + i).to(tl.int64)
    r = tl.load(relation + i).to(tl.int64)
    h_slot = slot_of(slots, owners, h, first + 2 * i, i >= 0, COMPACT)
    t_slot = slot_of(slots, owners, t, first + 2 * i + 1, i >= 0, COMPACT)
    r_slot = slot_of(relation_owners, relation_owners, r, r, i >= 0, False)
    penalise_row(h, rows, g_rows, h_slot, strength, D, BLOCK, KIND)
    penalise_row(t, rows, g_rows, t_slot, strength, D, BLOCK, KIND)
    penalise_row(r, relations, g_relations, r_slot, strength, D, BLOCK, KIND)
