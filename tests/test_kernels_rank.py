"""Distances, counts and ranks on every path."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from helpers import (
    WAYS,
    fast_twins,
    for_twins,
    graphs,
    new_kernels,
    new_model,
    paths,
    random_graph,
    threads,
    twins,
)  # fmt: skip
from nscaching.data.index import Side
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels import Kernels, Known
from nscaching.kernels.standing import Asked
from nscaching.models import MODULI

sides = pytest.mark.parametrize("side", list(Side))
models = pytest.mark.parametrize("name", WAYS)


def exact_distances(query, rows, norm):
    difference = query.double().unsqueeze(1) - rows.double()
    if norm == MODULI:
        return torch.complex(*difference.chunk(2, dim=2)).abs().sum(2)
    return torch.linalg.vector_norm(difference, norm, dim=2)


@for_twins(
    40,
    norm=[1, 2, MODULI],
    queries=st.integers(1, 9),
    entities=st.sampled_from([1, 2, 63, 64, 65, 150]),
    dim=st.integers(1, 13),
    size=st.sampled_from([1.0, 1e-6, 1e6]),
    seed=st.integers(0, 999),
)
def test_distances(twin, norm, queries, entities, dim, size, seed):
    generator = torch.Generator().manual_seed(seed)
    dim *= 2 if norm == MODULI else 1
    query, rows = (
        size * torch.randn(count, dim, generator=generator) for count in (queries, entities)
    )
    rows[0] = query[0]  # a distance of zero is exact
    exact = exact_distances(query, rows, norm)
    got = new_kernels(twin).distances(query, rows, norm)
    assert got.dtype == torch.float32
    assert got[0, 0] == 0
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=0)


@for_twins(
    30,
    norm=[1, 2, MODULI],
    queries=st.sampled_from([1, 2, 15, 16, 17, 40]),
    entities=st.sampled_from([1, 2, 63, 64, 65]),
    dim=st.integers(1, 13),
    seed=st.integers(0, 999),
)
def test_gradients_of_distances(twin, norm, queries, entities, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    dim *= 2 if norm == MODULI else 1
    query, rows = (torch.randn(count, dim, generator=generator) for count in (queries, entities))
    rows[0] = query[0]  # there the gradient is zero
    weight = torch.randn(queries, entities, generator=generator)
    exact = [part.double().requires_grad_() for part in (query, rows)]
    (exact_distances(*exact, norm) * weight).sum().backward()
    made = [part.clone().requires_grad_() for part in (query, rows)]
    (new_kernels(twin).distances(*made, norm) * weight).sum().backward()
    for got, expected in zip(made, exact, strict=True):
        torch.testing.assert_close(got.grad.double(), expected.grad, rtol=1e-4, atol=1e-4)


@paths
@pytest.mark.parametrize("norm", [1, 2, MODULI])
def test_distances_of_vectors_that_do_not_lie_together(path, norm):
    wide = torch.randn(12, 40, generator=torch.Generator().manual_seed(0))
    query, rows = wide[:5, ::2], wide.T[:, 3:9].T[:, ::2]
    exact = exact_distances(query, rows, norm)
    got = new_kernels(path).distances(query, rows, norm)
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-6)


@paths
@pytest.mark.parametrize("norm", [1, 2])
def test_distances_that_are_not_finite(path, norm):
    query = torch.tensor([[float("nan"), 0.0], [float("inf"), 0.0], [0.0, 3e38], [1.0, 2.0]])
    got = new_kernels(path).distances(query, torch.tensor([[1.0, 2.0], [-3e38, -3e38]]), norm)
    squares = norm == 2  # which overflow sooner
    expected = [[True, True], [True, True], [squares, True], [False, True]]
    assert (~got.isfinite()).tolist() == expected


@twins
@sides
@models
@pytest.mark.parametrize("norm", [1, 2])
def test_scores_of_all_entities(twin, side, name, norm):
    model = new_model(name, 150, 3, 11, norm)
    anchor, relation = torch.tensor([0, 149, 70, 3, 3]), torch.tensor([2, 0, 0, 1, 2])
    with torch.no_grad():
        exact = model.double().score_all(side, anchor, relation)
        got = new_kernels(twin).score_all(model.float(), side, anchor, relation)
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


def plain_count(scores, answer, known):
    """Count one number after another."""
    found = []
    for i, row in enumerate(scores.tolist()):
        others = set(range(len(row))) - {answer[i].item()}
        if known is not None:
            others -= set(known.answers[known.start[i] : known.end[i]].tolist())
        target = row[answer[i]]
        above = sum(row[e] > target for e in others)
        level = sum(row[e] == target for e in others)
        found.append((above, level, sum(not np.isfinite(score) for score in row)))
    return torch.tensor(found).T


@st.composite
def counts(draw, values):
    """Make scores that often tie, answers, and known answers with or without the true one."""
    n, entities = draw(st.integers(1, 7)), draw(st.sampled_from([1, 2, 5, 40]))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    scores = torch.from_numpy(random.choice(values, size=(n, entities)).astype(np.float32))
    answer = torch.from_numpy(random.integers(entities, size=n))
    if draw(st.booleans()):
        return scores, answer, None
    sizes = random.integers(0, min(entities, 6) + 1, size=n) * (random.random(n) < 0.7)
    runs = [random.choice(entities, size=size, replace=False) for size in sizes]
    # The runs of some queries lie anywhere among those of all.
    start = np.cumsum([3, *sizes[:-1]])
    answers = np.concatenate([random.integers(entities, size=3), *runs, [0]]).astype(np.int32)
    known = Known(*map(torch.from_numpy, (start, start + sizes, answers)))
    return scores, answer, known


FEW = [0.0, -0.0, 1.0, -1.5, 3.4e38, -3.4e38, 1e-40]


@for_twins(150, case=counts(FEW))
def test_counts(twin, case):
    scores, answer, known = case
    expected = plain_count(*case)
    assert torch.equal(new_kernels(twin).count(scores.clone(), answer, known), expected)
    assert torch.equal(Kernels().count(scores.clone(), answer, known), expected)


@for_twins(100, case=counts([*FEW, np.nan, np.inf, -np.inf]))
def test_counts_of_what_is_not_finite(twin, case):
    scores, answer, known = case
    expected = plain_count(*case)
    fair = scores.gather(1, answer.unsqueeze(1)).isfinite()[:, 0]
    for kernels in (Kernels(), new_kernels(twin)):
        got = kernels.count(scores.clone(), answer, known)
        assert torch.equal(got[2], expected[2])
        assert torch.equal(got[:, fair], expected[:, fair])


@for_twins(60, case=counts([*FEW, np.nan, np.inf]), first=st.integers(0, 12))
def test_counts_of_a_part(twin, case, first):
    """A part of the entities counts as if all others were known."""
    scores, answer, known = case
    fair = scores.gather(1, answer.unsqueeze(1)).isfinite()[:, 0]
    target, entities = scores.gather(1, answer.unsqueeze(1)).squeeze(1), scores.shape[1]
    cuts = sorted({0, min(first, entities), entities})
    if known is not None:
        runs = [
            known.answers[a:b].sort().values for a, b in zip(known.start, known.end, strict=True)
        ]
        sizes = torch.tensor([len(run) for run in runs])
        end = sizes.cumsum(0)
        known = Known(end - sizes, end, torch.cat([*runs, torch.zeros(1, dtype=torch.int32)]))
        places = known.cut(torch.tensor(cuts))
        for i, run in enumerate(runs):
            found = [int(known.start[i]) + int((run < cut).sum()) for cut in cuts]
            assert places[i].tolist() == found
    for kernels in (Kernels(), new_kernels(twin)):
        total = torch.zeros(3, len(scores), dtype=torch.int64)
        for number, (begin, end) in enumerate(pairwise(cuts)):
            ends = (places[:, at].contiguous() for at in (number, number + 1)) if known else ()
            here = known and Known(*ends, known.answers)
            part = scores[:, begin:end].contiguous().clone()
            total += kernels.count(part, answer, here, target, begin)
        assert torch.equal(total[:, fair], plain_count(scores, answer, known)[:, fair])


@twins
@sides
@models
def test_entities_in_parts_stand_as_all_at_once(twin, side, name):
    """With vectors twice in the table, far from each other: equal scores are equal bit for bit."""
    random, entities, n = np.random.default_rng(1), 40, 5
    model = new_model(name, entities, 3, 4)
    with torch.no_grad():
        for table in model.parameters():
            if len(table) == entities:
                table[20:] = table[:20]
    answer = torch.from_numpy(random.integers(entities, size=n))
    anchor, relation = torch.arange(n), torch.arange(n) % 3
    runs = [np.sort(random.choice(entities, 10 * (i % 2), replace=False)) for i in range(n)]
    ends = torch.tensor([0, *map(len, runs)]).cumsum(0)
    known = Known(ends[:-1], ends[1:], torch.from_numpy(np.concatenate(runs)).int())
    kernels, plain = new_kernels(twin), Kernels()
    with torch.no_grad():
        for some in (None, known):
            scores = kernels.score_all(model, side, anchor, relation)
            whole = plain.count(scores, answer, some)
            asked = Asked(anchor, relation, answer, some)
            assert whole[1].sum() >= n - 3  # nearly all have a twin that is not known
            for width in (16, 40):
                assert torch.equal(kernels.stand(model, side, asked, width), whole)
                assert torch.equal(plain.stand(model, side, asked, width)[1], whole[1])


def test_a_tile_of_a_large_graph_is_no_stripe():
    model = new_model("DistMult", 9, 3)
    for entities, queries, width in ((14_541, 2307, 14_541), (4_600_000, 1024, 32_768)):
        model.entities = entities
        tile = Kernels().tile(model, 512 << 20)
        assert tile == (queries, width, True)


def quantised(name, graph, seed, dim=6):
    """Make a model whose scores are exact, and often equal: vectors along axes, whole numbers."""
    entities, relations = len(graph.entities), len(graph.relations)
    if name.startswith("ManifoldE"):
        dim = 16  # whose entity vectors are of length two
    model = new_model(name, entities, relations, dim)
    generator = torch.Generator().manual_seed(seed)

    def axes(count):
        return torch.eye(dim)[torch.randint(dim, (count,), generator=generator)]

    with torch.no_grad():
        for table in model.parameters():
            table.copy_(torch.randint(-1, 2, table.shape, generator=generator))
        if name == "HolE" or model.family == "translational":
            # One number of each row: Fourier transforms leave equal rows equal, if not whole.
            model.entity.zero_()[:, :dim] = axes(entities)
        if name in ("TransD", "TransH", "TransR", "TranSparse"):
            model.relation.copy_(axes(relations))
        if name == "RotatE":  # cosines of other angles are not exact
            model.relation.zero_()
        if name in ("TransR", "TranSparse"):  # a permutation of the axes
            model.matrix.copy_(torch.eye(dim).roll(1, 0).view(-1))
        if name == "ManifoldE":  # with the centre, not inside and outside of a sphere alike
            model.radius.zero_()
        for fixed in model.buffers():
            fixed.fill_(1)
        if name == "TransH":
            model.normal.copy_(axes(relations))
        if name == "TransD":  # only entities along the first axis are moved, and along it
            model.relation_projection.copy_(torch.eye(dim)[:1].expand(relations, dim))
            model.entity_projection[:, 1:] = 0
    return model


@for_twins(15, name=WAYS, graph=graphs(), seed=st.integers(0, 999), filtered=st.booleans())
def test_ranks_agree(twin, name, graph, seed, filtered):
    model, queries = quantised(name, graph, seed), Queries(graph, graph.test, filtered)
    expected = rank(model, queries, kernels=Kernels())
    got = rank(model, queries, kernels=new_kernels(twin))
    for side in Side:
        assert got[side].optimistic.tolist() == expected[side].optimistic.tolist()
        assert got[side].pessimistic.tolist() == expected[side].pessimistic.tolist()


@models
def test_these_ranks_have_ties_and_differences(name):
    graph = random_graph(entities=40, train=60, test=30)
    ranks = rank(quantised(name, graph, 0), Queries(graph, graph.test), kernels=Kernels())
    for side in Side:
        assert (ranks[side].optimistic < ranks[side].pessimistic).any()
        assert len(set(ranks[side].optimistic.tolist())) > 2


@fast_twins  # an interpreter has one thread
@models
@pytest.mark.parametrize("norm", [1, 2])
def test_threads_do_not_change_a_ranking(twin, name, norm):
    graph = random_graph(entities=90, train=60, test=11)
    model, found = new_model(name, 90, 3, 11, norm), []
    query, rows = torch.randn(7, 11), torch.randn(130, 11)
    for count in (1, 2):
        with threads(count):
            kernels = new_kernels(twin)
        ranks = rank(model, Queries(graph, graph.test), kernels=kernels)
        both = [ranks[side].optimistic.tolist() for side in Side]
        found.append((both, kernels.distances(query, rows, norm)))
    (one, one_distances), (other, other_distances) = found
    assert one == other
    assert torch.equal(one_distances, other_distances)
