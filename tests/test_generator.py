"""KBGAN and IGAN: what is drawn, how the generator learns, and what is reported."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import TINY, batch_of, goodness, graph_of, model_for, new_sampler, random_graph
from nscaching import TrainConfig, UserError, train
from nscaching.data.index import Side
from nscaching.models import MODELS
from nscaching.runs.folder import RunFolder
from nscaching.samplers.generator import draw_by_chance
from nscaching.training.trainer import Trainer

GRAPH = random_graph()
both = pytest.mark.parametrize("sampler", ["kbgan", "igan"])


def larger(network, seed=3):
    """Give a network parameters whose softmax is far from uniform."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in network.parameters():
            torch.nn.init.normal_(table, generator=random)


def by_hand(network, side, anchor, relation):
    """Score all entities as answers of a query by the formula of the network [|E|]."""
    vector = network.relation[relation]
    half = vector[: len(vector) // 2] if side is Side.TAIL else vector[len(vector) // 2 :]
    given = torch.cat([network.entity[anchor], half])
    hidden = (network.inner @ given + network.shift[0]).clamp(min=0)
    return (network.entity @ (network.outer @ hidden)).detach()


def test_igan_draws_by_the_softmax_of_the_generator():
    graph = graph_of([(0, 0, 1)], entities=5)
    made = new_sampler(graph, sampler="igan", side="uniform")
    larger(made.generator)
    batch, heads, tails = batch_of(graph, [0] * 6000), Counter(), Counter()
    negatives = made.sample(batch, model_for(graph))
    for new_head, head, tail in zip(
        negatives.replace_head.tolist(), negatives.head[:, 0].tolist(),
        negatives.tail[:, 0].tolist(), strict=True,
    ):  # fmt: skip
        (heads if new_head else tails)[head if new_head else tail] += 1
    for side, seen, anchor, known in ((Side.HEAD, heads, 1, 0), (Side.TAIL, tails, 0, 1)):
        scores = by_hand(made.generator, side, anchor, relation=0)
        scores[known] = -math.inf
        chances = dict(enumerate(scores.double().softmax(0).tolist()))
        assert max(chances.values()) > 2 / 5
        assert goodness(seen, {e: p for e, p in chances.items() if p}) > 0.001


@given(
    st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=40).filter(
        lambda c: sum(c) > 1e-3
    ),
    st.floats(2**-24, 1 - 2**-24),
)
def test_draws_are_where_the_sum_of_chances_exceeds_the_number(chances, number):
    chance = torch.tensor([chances])
    chance /= chance.sum()
    drawn = int(draw_by_chance(chance, torch.tensor([[number]])))
    assert chance[0, drawn] > 0
    before, behind = float(chance[0, :drawn].sum()), float(chance[0, : drawn + 1].sum())
    assert before - 1e-5 <= number <= behind + 1e-5


def test_kbgan_chooses_among_n1():
    made = new_sampler(GRAPH, sampler="kbgan", n1=1)
    negatives = made.sample(batch_of(GRAPH), model_for(GRAPH))
    assert torch.equal(made.log_chance, torch.zeros(len(GRAPH.train), 1))
    assert torch.equal(made.entropy, torch.zeros(len(GRAPH.train), 1))
    assert len(set(negatives.head[:, 0].tolist())) > 3


def score_offered(made, negatives, batch):
    """Score what was offered, with a gradient; IGAN's known triples have no chance."""
    triple = batch.head, batch.relation, batch.tail
    scores = made.generator.score_corrupted(negatives.replace_head, *triple, made.offered)
    return scores.masked_fill(made.chance == 0, -1e9)


def baseline(sampler, reward):
    """Return what the reward of each draw [B, K] is compared with."""
    if sampler == "kbgan":
        return reward.mean()
    others = [torch.cat([reward[:, :k], reward[:, k + 1 :]], 1) for k in range(reward.shape[1])]
    return torch.stack([other.mean(1) for other in others], 1)


@both
@pytest.mark.parametrize("count", [1, 3, 9])
def test_the_generator_learns_by_reinforce(sampler, count):
    made = new_sampler(GRAPH, sampler=sampler, generator="DistMult", n1=6, negatives=count)
    batch, model = batch_of(GRAPH, [3, 5, 8, 9]), model_for(GRAPH, "TransE")
    negatives = made.sample(batch, model)
    assert negatives.entity.shape == (4, count)
    draws = made.drawn.entity
    assert torch.equal(negatives.entity, draws[:, :count])
    assert draws.shape[1] == (count if sampler == "kbgan" else max(count, 8))
    reward = model.score(made.drawn.head, batch.relation.unsqueeze(1), made.drawn.tail).detach()
    tables = list(made.generator.parameters())
    log_chance = score_offered(made, negatives, batch).log_softmax(1)
    gain = (reward - baseline(sampler, reward)) / (1 if sampler == "kbgan" else draws.shape[1])
    entropy = -(log_chance.exp() * log_chance).sum()
    loss = -(gain * log_chance.gather(1, made.chosen)).sum()
    if sampler == "igan":
        loss = loss - made.config.gan.entropy_bonus * entropy
    expected = torch.autograd.grad(loss, tables)
    made.update(batch, model)
    for table, gradient in zip(tables, expected, strict=True):
        torch.testing.assert_close(table.grad, gradient, atol=1e-5, rtol=1e-4)
    figures = made.figures()
    assert figures["generator_loss"] == pytest.approx(loss.item() / 4, rel=1e-5)
    assert figures["reward"] == pytest.approx(reward.mean().item())
    assert figures["entropy"] == pytest.approx(entropy.item() / 4)
    assert 0 < figures["entropy"] <= math.log(6 if sampler == "kbgan" else 12)
    assert made.figures() == {"generator_loss": 0.0, "reward": 0.0, "entropy": 0.0}


@pytest.mark.parametrize("side", Side)
def test_igan_climbs_what_it_says(side, monkeypatch):
    """The mean slopes over all draws are those of E[reward] + bonus · entropy."""
    graph = graph_of([(0, 0, 1), (2, 0, 1)], entities=5)
    made = new_sampler(graph, sampler="igan", entropy_bonus=0.7, dim=8)
    torch.nn.init.normal_(made.generator.entity, generator=torch.Generator().manual_seed(3))
    made.draws.head_probability.fill_(side is Side.HEAD)
    monkeypatch.setattr(made, "judged", 2)
    learned = []
    monkeypatch.setattr(made.scorer, "learn", lambda *given: learned.append(given[-1]))
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    batch, model = batch_of(graph, [0] * len(pairs)), model_for(graph, "TransE")
    made.sample(batch, model)
    made.chosen, made.drawn = pairs, batch.corrupt(made.drawn.replace_head, pairs, pairs)
    made.log_chance = made.log_chances.gather(1, pairs)
    made.update(batch, model)
    weight = made.chance[0][pairs].prod(1, keepdim=True)
    anchor, known = (1, [0, 2]) if side is Side.HEAD else (0, [1])
    rest = torch.tensor([entity for entity in range(5) if entity not in known])
    scores = by_hand(made.generator, side, anchor, 0)[rest].requires_grad_()
    log_chance = scores.log_softmax(0)
    head, tail = side.query(torch.tensor(anchor), rest)
    reward = model.score(head, torch.tensor(0), tail).detach()
    climbed = (log_chance.exp() * (reward - 0.7 * log_chance)).sum()
    (expected,) = torch.autograd.grad(climbed, scores)
    found = -(weight * learned[0]).sum(0)
    torch.testing.assert_close(found[rest], expected, atol=1e-5, rtol=1e-4)
    assert not found[known].any()


@both
def test_one_candidate_may_be_drawn_more_than_once(sampler):
    """Then its score has the slopes of all draws."""
    made = new_sampler(GRAPH, sampler=sampler, generator="DistMult", n1=2, negatives=14)
    batch, model = batch_of(GRAPH, [3, 5]), model_for(GRAPH, "TransE")
    negatives = made.sample(batch, model)
    assert all(len(set(row)) < 14 for row in made.chosen.tolist())
    reward = negatives.scores(model, batch).detach()
    log_chance = score_offered(made, negatives, batch).log_softmax(1)
    gain = (reward - baseline(sampler, reward)) / (1 if sampler == "kbgan" else 14)
    loss = -(gain * log_chance.gather(1, made.chosen)).sum()
    if sampler == "igan":
        loss = loss + made.config.gan.entropy_bonus * (log_chance.exp() * log_chance).sum()
    tables = list(made.generator.parameters())
    expected = torch.autograd.grad(loss, tables)
    made.update(batch, model)
    for table, gradient in zip(tables, expected, strict=True):
        torch.testing.assert_close(table.grad, gradient, atol=1e-5, rtol=1e-4)


def test_what_may_not_be_drawn_has_no_part_in_the_entropy():
    graph = graph_of([(0, 0, 1), (0, 0, 2), (3, 0, 1)], entities=5)
    made = new_sampler(graph, sampler="igan")
    batch, model = batch_of(graph), model_for(graph)
    made.sample(batch, model)
    made.update(batch, model)
    assert (made.chance == 0).any()
    chance = made.chance[made.chance > 0]
    expected = -(chance * chance.log()).sum().item() / len(batch)
    assert made.figures()["entropy"] == pytest.approx(expected, rel=1e-5)


@both
def test_the_reward_grows(sampler):
    """Against a model that stands still the generator finds what it takes for true."""
    options = {"generator": "DistMult", "generator_lr": 0.05, "n1": 8, "dim": 16}
    if sampler == "igan":  # which learns faster
        options |= {"generator_lr": 0.01, "entropy_bonus": 0.1}
    made, batch, model = (
        new_sampler(GRAPH, sampler=sampler, **options),
        batch_of(GRAPH),
        model_for(GRAPH),
    )
    rewards, entropies = [], []
    for _ in range(150):
        made.sample(batch, model)
        made.update(batch, model)
        figures = made.figures()
        rewards.append(figures["reward"])
        entropies.append(figures["entropy"])
    assert sum(rewards[-20:]) / 20 > sum(rewards[:20]) / 20 + 1
    assert entropies[-1] < 0.8 * entropies[0]


@pytest.mark.parametrize(
    ("sampler", "generator"), [*(("kbgan", name) for name in MODELS.names()), ("igan", "TransE")]
)
def test_every_generator_learns(sampler, generator):
    settings = {"sampler": sampler, "generator": generator, "side": "uniform"}
    trainer = Trainer(GRAPH, TrainConfig.from_dict(TINY | settings))
    tables = dict(trainer.sampler.generator.named_parameters())
    before = {name: table.detach().clone() for name, table in tables.items()}
    trainer.epoch(1)
    assert all(not torch.equal(table, before[name]) for name, table in tables.items())


def test_a_generator_from_a_run(tmp_path):
    settings = TINY | {"sampler": "bernoulli", "model": "DistMult", "epochs": 1}
    train(GRAPH, TrainConfig.from_dict(settings), out=tmp_path / "run")
    kept = RunFolder(tmp_path / "run").read_model()[0]
    settings = TINY | {"sampler": "kbgan", "generator": "DistMult"}
    trainer = Trainer(GRAPH, TrainConfig.from_dict(settings), (None, kept))
    for name, table in trainer.sampler.generator.state_dict().items():
        assert torch.equal(table, kept[name])
    settings |= {"generator_pretrain": str(tmp_path / "run"), "generator_lr": 1e-12}
    run = train(GRAPH, **settings)
    for name, table in kept.items():
        torch.testing.assert_close(run.sampler_state[f"generator.{name}"], table, atol=1e-9, rtol=0)
    with pytest.raises(UserError, match=r"generator_pretrain .*: its model: DistMult, here TransD"):
        train(GRAPH, **settings | {"generator": "TransD"})
    with pytest.raises(UserError, match="its entities: not the same"):
        train(random_graph(entities=30), **settings)


def test_a_generator_hears_of_the_graph():
    made = new_sampler(GRAPH, sampler="kbgan", generator="TransM")
    assert (made.generator.weight != 1).any()


@both
@pytest.mark.parametrize(("rate", "advice"), [("lr", "lr"), ("generator_lr", "generator_lr")])
def test_a_run_that_diverges_ends_with_advice(sampler, rate, advice):
    settings = {"sampler": sampler, "model": "DistMult", "generator": "DistMult", rate: 1e30}
    trainer = Trainer(GRAPH, TrainConfig.from_dict(TINY | settings))
    with pytest.raises(UserError, match=rf"try a lower {advice}$"):
        list(map(trainer.epoch, range(1, 5)))


@pytest.mark.parametrize("filter_known", [False, True])
def test_igan_keeps_known_triples_out_of_many_negatives(filter_known):
    # Of five tails three are known, and more negatives are drawn than are left.
    graph = graph_of([(0, 0, 1), (0, 0, 2), (0, 0, 3)], entities=5)
    options = {"sampler": "igan", "negatives": 6, "filter_known": filter_known}
    made, known = new_sampler(graph, **options), {(0, 1), (0, 2), (0, 3)}
    for _ in range(20):
        drawn = made.sample(batch_of(graph), model_for(graph))
        pairs = zip(drawn.head.flatten().tolist(), drawn.tail.flatten().tolist(), strict=True)
        assert not known & set(pairs)


@both
def test_the_run_keeps_the_generator(sampler, tmp_path):
    config = TrainConfig.from_dict(TINY | {"sampler": sampler})
    run = train(GRAPH, config, out=tmp_path / "run")
    assert {"generator.entity", "generator.relation"} <= run.sampler_state.keys()
    assert all(math.isfinite(r["entropy"]) for r in run.history if "split" not in r)
