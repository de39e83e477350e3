"""Training against all entities, without negatives."""

from __future__ import annotations

import pytest
import torch

from helpers import TINY, batch_of, model_for, random_graph
from nscaching import TrainConfig
from nscaching.data.index import Side
from nscaching.kernels import KVsAll, Learning, OneVsAll
from nscaching.models import MODELS, plain_distances
from nscaching.samplers import SAMPLERS
from nscaching.training.trainer import Trainer

GRAPH = random_graph(entities=8, train=50)
models = pytest.mark.parametrize("name", MODELS.names())


def model_of(name):
    return model_for(GRAPH, name).double()


def all_scores(model, side, h, r, t):
    everyone = torch.arange(len(GRAPH.entities))
    h, r, t = torch.tensor(h), torch.tensor(r), torch.tensor(t)
    return model.score(everyone, r, t) if side is Side.HEAD else model.score(h, r, everyone)


def answers(side, h, r, t):
    """Return the training answers of one query of a triple."""
    train = GRAPH.train.tolist()
    if side is Side.HEAD:
        return [a for a, b, c in train if (b, c) == (r, t)]
    return [c for a, b, c in train if (a, b) == (h, r)]


def check(learner, model, rows, slow_loss):
    """Compare losses and gradients with those of a slow twin."""
    batch = batch_of(GRAPH, rows)
    loss, _ = learner.loss(batch, None)
    expected = torch.stack([slow_loss(*GRAPH.train[row].tolist()) for row in rows])
    torch.testing.assert_close(loss, expected)
    tables = list(model.parameters())
    got = torch.autograd.grad(loss.sum(), tables)
    wanted = torch.autograd.grad(expected.sum(), tables)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


@models
def test_softmax_over_all(name):
    model = model_of(name)

    def slow(h, r, t):
        chances = {side: all_scores(model, side, h, r, t).softmax(0) for side in Side}
        return -chances[Side.HEAD][h].log() - chances[Side.TAIL][t].log()

    check(
        OneVsAll(model, Learning("1vsall", 0.0, 0.1, 0.0), plain_distances),
        model,
        [0, 7, 7, 12],
        slow,
    )


@models
def test_every_entity_true_or_false(name):
    model = model_of(name)

    def slow(h, r, t):
        total = 0.0
        for side in Side:
            scores, true = all_scores(model, side, h, r, t), answers(side, h, r, t)
            losses = [
                torch.nn.functional.softplus(-s if e in true else s) for e, s in enumerate(scores)
            ]
            total = total + sum(losses) / len(true)
        return total

    learner = KVsAll(model, Learning("kvsall", 0.0, 0.1, 0.0), plain_distances, GRAPH.train_index)
    check(learner, model, [0, 7, 7, 12, *range(20, 30)], slow)


@pytest.mark.parametrize("objective", ["auto", "1vsall", "kvsall"])
@pytest.mark.parametrize("optimizer", ["adam", "row-adam", "adagrad"])
def test_training_lowers_the_loss(objective, optimizer):
    settings = {"model": "ComplEx", "sampler": "none", "dim": 8, "lr": 0.1}
    config = TrainConfig.from_dict(
        TINY | settings | {"objective": objective, "optimizer": optimizer}
    )
    trainer = Trainer(GRAPH, config)
    first, *_, last = [trainer.epoch(epoch)["loss"] for epoch in range(1, 16)]
    assert last < 0.8 * first


def test_without_a_sampler_nothing_is_drawn():
    config = TrainConfig.from_dict(TINY | {"sampler": "none"})
    made = SAMPLERS.get("none")(GRAPH, config, torch.device("cpu"), 0)
    drawn = made.sample(batch_of(GRAPH, [1, 2]), model_of("TransE"))
    assert drawn.head.shape == drawn.tail.shape == (2, 0)
