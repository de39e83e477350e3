"""Every registered model: its formula, and that all ways of scoring agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import TINY, graph_of, new_model, random_graph
from nscaching import TrainConfig, UserError
from nscaching.data.index import Side
from nscaching.models import MODELS, Model, arithmetic, finite
from nscaching.models.arithmetic import start_in_pieces
from nscaching.training.trainer import Trainer

ENTITIES, RELATIONS, DIM = 9, 3, 4


def unit(vector):
    return vector / np.sqrt((vector**2).sum())


def norm_of(vector, norm):
    return np.abs(vector).sum() if norm == 1 else np.sqrt((vector**2).sum())


def transe(p, h, r, t, norm):
    return -norm_of(unit(p["entity"][h]) + p["relation"][r] - unit(p["entity"][t]), norm)


def transh(p, h, r, t, norm):
    w = unit(p["normal"][r])
    project = np.eye(len(w)) - np.outer(w, w)
    moved = project @ unit(p["entity"][h]) + unit(p["relation"][r])
    return -norm_of(moved - project @ unit(p["entity"][t]), norm)


def transd(p, h, r, t, norm):
    def project(e):
        # M = w_r·w_eᵀ + I, the mapping matrix of the paper
        mapping = np.outer(p["relation_projection"][r], p["entity_projection"][e])
        return unit((mapping + np.eye(len(mapping))) @ unit(p["entity"][e]))

    return -norm_of(project(h) + unit(p["relation"][r]) - project(t), norm)


def distmult(p, h, r, t, norm):
    return p["entity"][h] @ np.diag(p["relation"][r]) @ p["entity"][t]


def complex_(p, h, r, t, norm):
    def number(row):
        return row[: len(row) // 2] + 1j * row[len(row) // 2 :]

    h, r, t = number(p["entity"][h]), number(p["relation"][r]), number(p["entity"][t])
    return np.sum(h * r * np.conj(t)).real


def rescal(p, h, r, t, norm):
    d = p["entity"].shape[1]
    matrix = p["relation"][r].reshape(d, d)
    return sum(
        p["entity"][h, i] * matrix[i, j] * p["entity"][t, j] for i in range(d) for j in range(d)
    )


def hole(p, h, r, t, norm):
    h, r, t = p["entity"][h], p["relation"][r], p["entity"][t]
    d = len(r)
    return sum(r[k] * sum(h[i] * t[(i + k) % d] for i in range(d)) for k in range(d))


def analogy(p, h, r, t, norm):
    # The block-diagonal matrix of the paper: numbers, and blocks [[x, y], [-y, x]].
    d, row = p["entity"].shape[1], p["relation"][r]
    pairs = d // 4
    matrix, order = np.zeros((d, d)), [*range(d - 2 * pairs)]
    np.fill_diagonal(matrix[: d - 2 * pairs], row[: d - 2 * pairs])
    for pair in range(d - 2 * pairs, d - pairs):
        at = len(order)
        x, y = row[pair], row[pair + pairs]
        matrix[at : at + 2, at : at + 2] = [[x, y], [-y, x]]
        order += [pair, pair + pairs]
    return p["entity"][h][order] @ matrix @ p["entity"][t][order]


def simple(p, h, r, t, norm):
    d = p["entity"].shape[1] // 2
    there = np.sum(p["entity"][h, :d] * p["relation"][r, :d] * p["entity"][t, d:])
    back = np.sum(p["entity"][t, :d] * p["relation"][r, d:] * p["entity"][h, d:])
    return (there + back) / 2


def rotate(p, h, r, t, norm):
    def number(row):
        return row[: len(row) // 2] + 1j * row[len(row) // 2 :]

    turned = number(p["entity"][h]) * np.exp(1j * p["relation"][r])
    return -norm_of(np.abs(turned - number(p["entity"][t])), norm)


def transm(p, h, r, t, norm):
    return p["weight"][r] * transe(p, h, r, t, norm)


def transr(p, h, r, t, norm):
    d = p["entity"].shape[1]
    matrix = (p["matrix"][r] * p.get("mask", np.ones_like(p["matrix"]))[r]).reshape(d, d)
    h, t = (unit(matrix @ unit(p["entity"][e])) for e in (h, t))
    return -norm_of(h + unit(p["relation"][r]) - t, norm)


def manifolde(p, h, r, t, norm):
    h, t = (DIM**0.25 * unit(p["entity"][e]) for e in (h, t))
    difference = h + p["relation"][r] - t
    return -abs(difference @ difference - p["radius"][r, 0] ** 2)


def manifolde_hyperplane(p, h, r, t, norm):
    r_head, r_tail = np.split(p["relation"][r], 2)
    h, t = (DIM**0.25 * unit(p["entity"][e]) for e in (h, t))
    product = (h + r_head) @ (t + r_tail)
    return -abs(product - p["radius"][r, 0] ** 2)


FORMULAS = {
    "TransE": transe,
    "TransH": transh,
    "TransD": transd,
    "DistMult": distmult,
    "ComplEx": complex_,
    "RESCAL": rescal,
    "HolE": hole,
    "ANALOGY": analogy,
    "SimplE": simple,
    "RotatE": rotate,
    "TransM": transm,
    "TransR": transr,
    "TranSparse": transr,
    "ManifoldE": manifolde,
    "ManifoldE-hyperplane": manifolde_hyperplane,
}


class Plain(Model):
    """A model that says no form: everything goes through its plain ``score``."""

    family = "semantic"

    def __init__(self, entities, relations, dim, norm=1):
        super().__init__(entities, relations, dim, norm)
        self.entity = nn.Parameter(torch.empty(entities, dim))
        self.relation = nn.Parameter(torch.empty(relations, dim))

    def score(self, head, relation, tail):
        h, t = self.entity_rows(head), self.entity_rows(tail)
        return torch.tanh(h + 2 * F.embedding(relation, self.relation)).mul(t).sum(-1)


def make(name, norm=1, dtype=torch.float64, **sizes):
    if name != "Plain":
        return new_model(name, norm=norm, dtype=dtype, **sizes)
    model = Plain(sizes.get("entities", ENTITIES), RELATIONS, DIM, norm)
    nn.init.normal_(model.entity, generator=torch.Generator().manual_seed(1))
    nn.init.normal_(model.relation, generator=torch.Generator().manual_seed(2))
    return model.to(dtype)


names = pytest.mark.parametrize("name", [*MODELS.names(), "Plain"])
norms = pytest.mark.parametrize("norm", [1, 2])
sides = pytest.mark.parametrize("side", list(Side))


def everything():
    """Return all triples of ids, as three tensors [n]."""
    return torch.cartesian_prod(
        torch.arange(ENTITIES), torch.arange(RELATIONS), torch.arange(ENTITIES)
    ).unbind(1)


def slow_scores(model, side, anchor, relation, candidates):
    """Score candidates [B, K] one by one."""
    rows = []
    for a, r, some in zip(anchor, relation, candidates, strict=True):
        triples = [(c, r, a) if side is Side.HEAD else (a, r, c) for c in some]
        rows.append(torch.stack([model.score(*triple) for triple in triples]))
    return torch.stack(rows)


def test_every_model_has_a_formula():
    assert set(FORMULAS) == set(MODELS.names())


@norms
@pytest.mark.parametrize("name", MODELS.names())
def test_score_is_the_formula(name, norm):
    model = make(name, norm)
    tables = {key: table.numpy() for key, table in model.state_dict().items()}
    heads, relations, tails = everything()
    triples = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
    expected = [FORMULAS[name](tables, *triple, norm) for triple in triples]
    with torch.no_grad():
        torch.testing.assert_close(model.score(heads, relations, tails), torch.tensor(expected))


@names
def test_score_broadcasts(name):
    model = make(name)
    head, relation, tail = (
        torch.tensor([[0], [8]]),
        torch.tensor([[1], [2]]),
        torch.tensor([[3, 0, 8]]),
    )
    got = model.score(head, relation, tail)
    assert got.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = model.score(head[i, 0], relation[i, 0], tail[0, j])
            assert one.shape == ()
            torch.testing.assert_close(got[i, j], one)


# Of 9 entities: fewer candidates in all, as many, more in all, more for each query.
@pytest.mark.parametrize(("queries", "count"), [(1, 1), (2, 4), (3, 3), (4, 5), (5, 40)])
@names
@norms
@sides
def test_candidates_agree_with_single_scores(name, norm, side, queries, count):
    model = make(name, norm)
    random = torch.Generator().manual_seed(queries)
    anchor = torch.randint(ENTITIES, (queries,), generator=random)
    anchor[0] = 0
    relation = torch.arange(queries) % RELATIONS
    candidates = torch.randint(ENTITIES, (queries, count), generator=random)
    candidates[:, 0] = 0
    candidates[:, -1] = candidates[:, count // 2]  # a repeat
    got = model.score_candidates(side, anchor, relation, candidates)
    torch.testing.assert_close(got, slow_scores(model, side, anchor, relation, candidates))


@pytest.mark.parametrize("piece", [1, 200, 1 << 20])
@names
@sides
def test_candidates_in_pieces(name, side, piece, monkeypatch):
    model = make(name)
    anchor, relation = torch.tensor([0, 8, 3, 0, 5]), torch.tensor([0, 2, 1, 1, 0])
    candidates = torch.randint(ENTITIES, (5, 6), generator=torch.Generator().manual_seed(0))
    expected = slow_scores(model, side, anchor, relation, candidates)
    monkeypatch.setitem(arithmetic.PIECE_BYTES, "cpu", piece)
    torch.testing.assert_close(model.score_candidates(side, anchor, relation, candidates), expected)


@names
@norms
def test_corrupted_triples_agree_with_single_scores(name, norm):
    model, random = make(name, norm), torch.Generator().manual_seed(0)
    head, tail = torch.randint(ENTITIES, (2, 6), generator=random)
    relation, new_head = torch.arange(6) % RELATIONS, torch.arange(6) % 2 == 0
    entity = torch.randint(ENTITIES, (6, 4), generator=random)
    got = model.score_corrupted(new_head, head, relation, tail, entity)
    heads = torch.where(new_head.unsqueeze(1), entity, head.unsqueeze(1))
    tails = torch.where(new_head.unsqueeze(1), tail.unsqueeze(1), entity)
    expected = model.score(heads, relation.unsqueeze(1), tails)
    torch.testing.assert_close(got, expected)
    everyone = model.score_all_corrupted(new_head, head, relation, tail)
    torch.testing.assert_close(everyone.gather(1, entity), expected)
    tables = [table for table in model.parameters() if table.requires_grad]
    slopes, wanted = (torch.autograd.grad(x.sum(), tables) for x in (got, expected))
    for one, other in zip(slopes, wanted, strict=True):
        torch.testing.assert_close(one, other)


@names
@norms
@sides
def test_all_entities_agree_with_single_scores(name, norm, side):
    model = make(name, norm)
    anchor, relation = torch.tensor([0, 4, 8, 0, 2]), torch.tensor([2, 0, 2, 1, 0])
    everyone = torch.arange(ENTITIES).expand(5, -1)
    got = model.score_all(side, anchor, relation)
    assert got.shape == (5, ENTITIES)
    torch.testing.assert_close(got, slow_scores(model, side, anchor, relation, everyone))


@names
@sides
def test_single_precision_is_near_double(name, side):
    anchor, relation = torch.tensor([0, 4, 8]), torch.tensor([2, 0, 2])
    single, double = make(name, 2, torch.float32), make(name, 2)
    double.load_state_dict(single.state_dict())
    got = single.score_all(side, anchor, relation).double()
    torch.testing.assert_close(got, double.score_all(side, anchor, relation), atol=1e-5, rtol=1e-5)


@sides
def test_small_distances_survive_single_precision(side):
    # Distances by way of ‖q‖² + ‖e‖² − 2q·e would be off by more than they are.
    model = make("TransE", 2, torch.float32)
    model.relation.data.fill_(1e-4)
    anchor, relation = torch.arange(ENTITIES), torch.zeros(ENTITIES, dtype=torch.long)
    expected = torch.full((ENTITIES,), -2e-4)  # −‖r‖: four times 1e-4
    loop = model.score_all(side, anchor, relation).diagonal()
    torch.testing.assert_close(loop, expected, atol=0, rtol=0.01)
    loop = model.score_candidates(side, anchor, relation, anchor.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(loop, expected, atol=0, rtol=0.01)


@names
@sides
def test_no_queries_and_no_candidates(name, side):
    model, none = make(name), torch.empty(0, dtype=torch.long)
    assert model.score_all(side, none, none).shape == (0, ENTITIES)
    assert model.score_candidates(side, none, none, none.reshape(0, 3)).shape == (0, 3)
    one = torch.tensor([1])
    assert model.score_candidates(side, one, one, none.reshape(1, 0)).shape == (1, 0)


@names
@norms
def test_gradient(name, norm):
    model = make(name, norm)
    head, relation, tail = (
        torch.tensor([0, 3, 8, 3]),
        torch.tensor([0, 1, 2, 1]),
        torch.tensor([5, 0, 1, 0]),
    )
    tables = dict(model.named_parameters())

    def score(*values):
        given = dict(zip(tables, values, strict=True))
        return torch.func.functional_call(model, given, (head, relation, tail))

    model.forward = model.score
    inputs = tuple(table.detach().clone().requires_grad_() for table in tables.values())
    assert torch.autograd.gradcheck(score, inputs)


@names
@pytest.mark.parametrize("wrong", [-1, ENTITIES])
def test_entity_ids_out_of_bounds_raise(name, wrong):
    model, zero, bad = make(name), torch.tensor([0]), torch.tensor([wrong])
    with pytest.raises(IndexError):
        model.score(bad, zero, zero)
    with pytest.raises(IndexError):
        model.score(zero, zero, bad)
    for side in Side:
        with pytest.raises(IndexError):
            model.score_all(side, bad, zero)
        for count in (1, ENTITIES + 1):  # both code paths
            with pytest.raises(IndexError):
                model.score_candidates(side, zero, zero, bad.expand(1, count))


@names
@pytest.mark.parametrize("wrong", [-1, RELATIONS])
def test_relation_ids_out_of_bounds_raise(name, wrong):
    model, zero, bad = make(name), torch.tensor([0]), torch.tensor([wrong])
    with pytest.raises(IndexError):
        model.score(zero, bad, zero)
    for side in Side:
        with pytest.raises(IndexError):
            model.score_all(side, zero, bad)
        with pytest.raises(IndexError):
            model.score_candidates(side, zero, bad, zero.unsqueeze(0))


FIXED_START = {
    "matrix": lambda table: torch.eye(DIM).view(-1).expand_as(table),
    "radius": lambda table: torch.full_like(table, DIM**0.25),
    "weight": torch.ones_like,  # not told of any triples
    "mask": torch.ones_like,
}


@pytest.mark.parametrize("name", MODELS.names())
def test_start_is_xavier_and_seeded(name):
    def start(seed):
        model = MODELS.get(name)(ENTITIES, RELATIONS, DIM)
        model.reset(torch.Generator().manual_seed(seed))
        return model.state_dict()

    first, again, other = start(1), start(1), start(2)
    for key, table in first.items():
        assert torch.equal(table, again[key])
        if key in FIXED_START:
            assert torch.equal(table, FIXED_START[key](table))
            continue
        assert not torch.equal(table, other[key])
        if (name, key) == ("RotatE", "relation"):  # any angle
            assert 0.5 * math.pi < table.abs().max() <= math.pi
            continue
        bound = (6 / sum(table.shape)) ** 0.5
        assert 0.5 * bound < table.abs().max() <= bound


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite(wrong):
    assert finite(torch.zeros(2, 2)).shape == (2, 2)
    with pytest.raises(UserError, match="diverged"):
        finite(torch.tensor([[0.0, wrong]]))


# Models that are not a formula of their tables alone.


def test_weights_of_transm():
    # r0: heads 0 and 1, tails 2, 3, 4; r1: one to one; r2: never seen.
    graph = graph_of([(0, 0, 2), (0, 0, 3), (0, 0, 4), (1, 0, 2), (5, 1, 6)], relations=3)
    model = MODELS.get("TransM")(7, 3, DIM)
    assert model.weight_of(torch.tensor([0, 2])).tolist() == [1, 1]
    model.prepare(graph)
    expected = [1 / math.log(4 / 2 + 4 / 3), 1 / math.log(2), 1 / math.log(2)]
    assert model.weight.tolist() == pytest.approx(expected)
    assert (model.weight > 0).all()


def test_masks_of_transparse():
    triples = [(h, 0, t) for h in range(10) for t in range(10)]
    graph = graph_of(triples + [(h, 1, h) for h in range(5)], entities=10, relations=3)
    first, again = (MODELS.get("TranSparse")(10, 3, 30) for _ in range(2))
    first.prepare(graph)
    again.prepare(graph)
    assert torch.equal(first.mask, again.mask)
    assert first.mask.view(3, 30, 30).diagonal(dim1=1, dim2=2).all()
    kept = [(mask.sum() - 30).item() / 870 for mask in first.mask]
    assert kept == pytest.approx([0.7, 0.7 * 5 / 100, 0], abs=0.05)
    assert kept[2] == 0


def test_numbers_off_the_mask_stay_zero():
    graph = random_graph(train=60)
    config = TrainConfig.from_dict(TINY | {"model": "TranSparse", "dim": 8})
    trainer = Trainer(graph, config)
    trainer.epoch(1)
    model, eye = trainer.model, torch.eye(8).view(-1)
    changed = model.matrix != eye
    assert changed.any()
    assert not changed[~model.mask].any()


def test_turning_everything_changes_no_distance():
    """The head query of RotatE, conj(r)∘t, rests on it; a sum of |real| + |imaginary| would not."""
    model = make("RotatE")
    anchor, relation = torch.arange(ENTITIES), torch.arange(ENTITIES) % RELATIONS
    head = model.score_all(Side.HEAD, anchor, relation)
    tail = model.score_all(Side.TAIL, anchor, relation)
    together = model.score(anchor[:, None], relation[:, None], anchor[None])
    torch.testing.assert_close(tail, together)
    expected = torch.stack(
        [model.score(anchor, r, t) for t, r in zip(anchor, relation, strict=True)]
    )
    torch.testing.assert_close(head, expected)


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_sums_of_moduli_in_pieces(piece, monkeypatch):
    monkeypatch.setitem(arithmetic.PIECE_BYTES, "cpu", piece)
    query, rows = torch.randn(2, 4, 10).double(), torch.randn(2, 5, 10).double()
    number = query[..., :5] + 1j * query[..., 5:], rows[..., :5] + 1j * rows[..., 5:]
    expected = (number[0].unsqueeze(2) - number[1].unsqueeze(1)).abs().sum(-1)
    torch.testing.assert_close(arithmetic.plain_distances(query, rows, arithmetic.MODULI), expected)


@pytest.mark.parametrize("name", ["RotatE", "TransR", "ManifoldE"])
def test_a_loop_has_a_finite_gradient(name):
    model = make(name)
    torch.nn.init.zeros_(model.relation)
    same = torch.arange(3)
    model.score(same, same, same).sum().backward()
    assert all(torch.isfinite(table.grad).all() for table in model.parameters())


@names
def test_large_tables_are_scored_in_pieces(name, monkeypatch):
    model = make(name)
    anchor, relation = torch.tensor([0, 3, 8]), torch.tensor([1, 0, 1])
    with torch.no_grad():
        whole = [model.score_all(side, anchor, relation) for side in Side]
        monkeypatch.setattr("nscaching.models.arithmetic.MOST_ROWS", 2 * model.entity.shape[1])
        pieces = [model.score_all(side, anchor, relation) for side in Side]
    torch.testing.assert_close(pieces, whole)
    with torch.enable_grad():  # in one piece, which autograd needs
        assert model.score_all(Side.TAIL, anchor, relation).requires_grad


def test_a_table_elsewhere_starts_with_the_same_numbers(monkeypatch):
    monkeypatch.setattr("nscaching.models.arithmetic.PIECE", 7)
    tables = [torch.empty(13, 5), torch.empty(13, 5)]
    first, second = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(2):  # one table after another
        torch.nn.init.xavier_uniform_(tables[0], generator=first)
        start_in_pieces(tables[1], second)
        assert torch.equal(*tables)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@names
def test_a_model_on_a_gpu_starts_with_the_same_numbers(name):
    graph, found = random_graph(), []
    for device in ("cpu", "cuda"):
        config = TrainConfig.from_dict({**TINY, "model": name, "device": device})
        found.append({k: t.cpu() for k, t in Trainer(graph, config).model.state_dict().items()})
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
