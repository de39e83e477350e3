"""The losses against their formulas, and an epoch of training against Adam by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from helpers import TINY, batch_of, model_for, new_model, random_graph
from nscaching import TrainConfig, UserError
from nscaching.kernels import AutogradLearner, Learning
from nscaching.kernels.learner import cubes
from nscaching.kernels.losses import LOGISTIC_ZERO, losses
from nscaching.models import MODELS
from nscaching.samplers.objective import choose_objective, penalty
from nscaching.training.trainer import Trainer

POSITIVE = [2.0, -1.0, 0.5, 9.0]
NEGATIVE = [[1.0, 3.0], [-6.0, -5.5], [0.5, -0.5], [-9.0, -8.0]]


def test_margin_ranking():
    loss, teaching = losses("margin", 4.0, torch.tensor(POSITIVE), torch.tensor(NEGATIVE))
    expected = [
        sum(max(0.0, 4.0 - positive + negative) for negative in row)
        for positive, row in zip(POSITIVE, NEGATIVE, strict=True)
    ]
    assert loss.tolist() == expected == [3.0 + 5.0, 0.0, 4.0 + 3.0, 0.0]
    assert teaching.tolist() == [True, False, True, False]


def test_logistic():
    positive, negative = torch.tensor(POSITIVE).double(), torch.tensor(NEGATIVE).double()
    loss, teaching = losses("logistic", 0.0, positive, negative)
    expected = [
        math.log(1 + math.exp(-p)) + sum(math.log(1 + math.exp(n)) for n in row)
        for p, row in zip(POSITIVE, NEGATIVE, strict=True)
    ]
    assert loss.tolist() == pytest.approx(expected)
    assert teaching.tolist() == [True, False, True, False]
    assert math.log(1 + math.exp(-6.0)) + math.log(1 + math.exp(-5.5)) < LOGISTIC_ZERO


@pytest.mark.parametrize("objective", ["margin", "shifted", "logistic"])
def test_weighed_negatives(objective):
    """Self-adversarial weights are a softmax of the scores, and constants in the gradient."""
    graph = random_graph()
    model = model_for(graph, "TransE").double()
    batch, false = batch_of(graph, [0, 3, 7]), torch.tensor([[1, 2], [5, 6], [0, 9]])
    negatives = dataclasses.replace(
        batch.corrupt(torch.tensor([True, False, True]), false, false), adversarial=0.7
    )
    learner = AutogradLearner(model, Learning(objective, 3.0, 0.1, 0.0))
    loss, _ = learner.loss(batch, negatives)
    positive = model.score(batch.head, batch.relation, batch.tail)
    scores = model.score(negatives.head, batch.relation.unsqueeze(1), negatives.tail)
    weight = (0.7 * scores.detach()).exp()
    weight = weight / weight.sum(1, keepdim=True)
    shift = 3.0 if objective == "shifted" else 0.0
    if objective == "margin":
        expected = (weight * (3.0 - positive.unsqueeze(1) + scores).clamp(min=0)).sum(1)
    else:
        wrong = torch.log1p((scores + shift).exp())
        expected = torch.log1p((-positive - shift).exp()) + (weight * wrong).sum(1)
    torch.testing.assert_close(loss, expected)
    got, wanted = (torch.autograd.grad(x.sum(), model.entity)[0] for x in (loss, expected))
    torch.testing.assert_close(got, wanted)


def test_cubes_are_penalised():
    graph = random_graph()
    model = model_for(graph, "ComplEx").double()
    batch = batch_of(graph, [0, 3, 3])
    e, r = (torch.complex(*t.detach().chunk(2, 1)) for t in (model.entity, model.relation))
    expected = sum((x.abs() ** 3).sum() for x in (e[batch.head], r[batch.relation], e[batch.tail]))
    torch.testing.assert_close(cubes(model, batch.head, batch.relation, batch.tail), expected)


def test_cubes_are_for_semantic_models():
    with pytest.raises(UserError, match="n3 is for semantic matching models; give l2"):
        choose_objective(TrainConfig(penalty_norm="n3"), new_model("TransE"))
    model = new_model("ANALOGY", dim=8)
    real, re, im = model.entity.detach().split([4, 2, 2], 1)
    expected = torch.cat([real.abs(), torch.complex(re, im).abs()], 1)
    torch.testing.assert_close(model.moduli(model.entity.detach()), expected)


@pytest.mark.parametrize("flags", [{"negatives": 2}, {"filter_known": True}])
def test_what_needs_negatives_is_refused_without(flags):
    with pytest.raises(UserError, match=r"^sampler none draws no negatives: leave out "):
        TrainConfig(sampler="none", **flags)


@pytest.mark.parametrize(
    ("objective", "sampler", "advice"),
    [("1vsall", "nscaching", "no negatives: give sampler none"),
     ("kvsall", "bernoulli", "no negatives: give sampler none"),
     ("margin", "none", "negatives: give a sampler")],
)  # fmt: skip
def test_objectives_and_samplers_have_to_fit(objective, sampler, advice):
    config = TrainConfig(objective=objective, sampler=sampler)
    with pytest.raises(UserError, match=rf"^objective {objective} uses {advice}$"):
        choose_objective(config, new_model("TransE"))


def test_logistic_of_large_scores_is_finite():
    loss, _ = losses("logistic", 0.0, torch.tensor([-500.0]), torch.tensor([[500.0]]))
    assert loss.tolist() == [1000.0]


@pytest.mark.parametrize("name", MODELS.names())
def test_objective_goes_by_the_family(name):
    model = new_model(name)
    for objective in ("margin", "logistic"):
        assert choose_objective(TrainConfig(model=name, objective=objective), model) == objective
    by_family = {"semantic": "logistic", "translational": "margin"}[model.family]
    assert choose_objective(TrainConfig(model=name), model) == by_family
    assert choose_objective(TrainConfig(model=name, sampler="none"), model) == "1vsall"
    shifted = {"semantic": "logistic", "translational": "shifted"}[model.family]
    config = TrainConfig(model=name, sampler="self-adversarial")
    assert choose_objective(config, model) == shifted


def test_classes_of_the_user_s_say_what_they_need(tmp_path):
    """The loss goes by what a sampler's class says of itself, not by its name."""
    (tmp_path / "mine.py").write_text(
        "from nscaching.samplers.fixed import NoSampler, SelfAdversarial\n"
        "class Weighted(SelfAdversarial): pass\n"
        "class Nothing(NoSampler): pass\n"
    )
    for name, objective in (("Weighted", "shifted"), ("Nothing", "1vsall")):
        config = TrainConfig(sampler=f"{tmp_path / 'mine.py'}:{name}")
        assert choose_objective(config, new_model("TransE")) == objective
    assert penalty(config, new_model("ComplEx")) == 0.0


@pytest.mark.parametrize("kernels", ["reference", "numba"])
@pytest.mark.parametrize("model", MODELS.names())
@pytest.mark.parametrize("penalty", [0.0, 0.7])
@pytest.mark.parametrize("batch_size", [15, 100])
def test_an_epoch_is_adam_on_loss_and_penalty(kernels, model, penalty, batch_size):
    check_epoch(random_graph(train=40), kernels, model, penalty, batch_size)


@pytest.mark.parametrize("kernels", ["reference", "numba"])
@pytest.mark.parametrize("model", ["DistMult", "ComplEx"])
def test_a_short_last_batch_has_a_small_share_of_the_penalty(kernels, model):
    """The second of the batches has one triple, and 1/301 of the penalty."""
    shares = check_epoch(random_graph(train=301), kernels, model, 30.0, 300)
    assert shares == [300 / 301, 1 / 301]


def check_epoch(graph, kernels, model, penalty, batch_size):
    """Compare an epoch with Adam by hand; return each batch's share of the penalty.

    λ adds λ·(batch / n_train)/2·‖Θ‖² to the summed loss of a batch: λ/2·‖Θ‖² in an epoch.
    """
    triples = len(graph.train)
    settings = {"sampler": "bernoulli", "lr": 0.03, "model": model, "penalty": penalty}
    # With few dimensions the signs of an L1 gradient cancel by chance, and rounding decides.
    settings |= {"batch_size": batch_size, "dim": 9, "kernels": kernels}
    if model == "TransM":  # whose signs have weights: in L1 rounding decides where they cancel
        settings["norm"] = 2
    config = TrainConfig.from_dict(TINY | settings)
    trainer = Trainer(graph, config)
    twin = {name: p.detach().double() for name, p in trainer.model.named_parameters()}
    steps = []
    sample = trainer.sampler.sample

    def note(batch, model):
        steps.append((batch, sample(batch, model)))
        return steps[-1][1]

    trainer.sampler.sample = note
    record = trainer.epoch(1)

    plain = MODELS.get(model)(12, 3, config.dim, config.norm)
    plain.prepare(graph)
    plain = plain.double()
    plain.forward = plain.score
    shares = []
    first = {name: torch.zeros_like(p) for name, p in twin.items()}
    second = {name: torch.zeros_like(p) for name, p in twin.items()}
    loss_sum, norms, teaching = 0.0, [], 0
    for step, (batch, negatives) in enumerate(steps, start=1):
        tables = {name: p.clone().requires_grad_() for name, p in twin.items()}

        def score(*ids, tables=tables):
            return torch.func.functional_call(plain, tables, ids)

        positive = score(batch.head, batch.relation, batch.tail)
        negative = score(negatives.head[:, 0], batch.relation, negatives.tail[:, 0])
        if plain.family == "semantic":
            losses = torch.log1p((-positive).exp()) + torch.log1p(negative.exp())
            teaching += int((torch.log1p(negative.exp()) > 0.01).sum())
        else:
            losses = (config.margin - positive + negative).clamp(min=0)
            teaching += int((losses > 0).sum())
        loss_sum += losses.sum().item()
        plain_gradient = torch.autograd.grad(losses.sum(), list(tables.values()), retain_graph=True)
        norms.append(math.sqrt(sum((g**2).sum().item() for g in plain_gradient)))
        squares = sum((table**2).sum() for table in tables.values())
        shares.append(len(batch) / triples)
        whole = losses.sum() + penalty * shares[-1] / 2 * squares
        gradients = torch.autograd.grad(whole, list(tables.values()))
        for name, gradient in zip(tables, gradients, strict=True):
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            mean = first[name] / (1 - 0.9**step)
            scale = (second[name] / (1 - 0.999**step)).sqrt() + 1e-8
            twin[name] = twin[name] - 0.03 * mean / scale
    assert len(steps) == math.ceil(triples / batch_size)
    assert sum(shares) == pytest.approx(1)
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter.double(), twin[name], atol=2e-5, rtol=0)
    assert record["loss"] == pytest.approx(loss_sum / triples, rel=1e-5)
    assert record["gradient_norm"] == pytest.approx(sum(norms) / len(norms), rel=1e-4)
    assert record["nonzero_loss"] == teaching / triples
    return shares


@pytest.mark.parametrize("name", MODELS.names())
def test_a_penalty_left_open_goes_by_the_model(name):
    trainer = Trainer(
        random_graph(train=40), TrainConfig.from_dict(TINY | {"model": name, "penalty": None})
    )
    by_family = {"semantic": 0.1, "translational": 0.0}[trainer.model.family]
    assert penalty(trainer.config, trainer.model) == by_family
    assert trainer.config.penalty is None  # left open for another model
    assert trainer.learner.learning.weight_decay == pytest.approx(by_family / 40)
