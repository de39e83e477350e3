"""A loss that is no number: which batch it was, what probably did it, and what is left."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import TINY, fast_paths, new_kernels, new_model, paths, plain_batch, random_graph
from nscaching import TrainConfig, UserError, train
from nscaching.kernels import Learning
from nscaching.kernels.batch import Negatives
from nscaching.training.trainer import Trainer

GRAPH = random_graph()  # 40 training triples: three batches of 16


def triples_of(*rows):
    """Make a batch of (head, relation, tail, head of the negative, tail of the negative)."""
    head, relation, tail, false_head, false_tail = torch.tensor(rows).T.contiguous()
    negatives = Negatives(false_head.unsqueeze(1), false_tail.unsqueeze(1))
    return plain_batch(head, relation, tail), negatives


def spoil(trainer, at, value=float("nan")):
    """Let one number of all rows be wrong from the given batch of an epoch on."""
    step, done = trainer.step, []

    def spoiled(rows):
        done.append(rows)
        if len(done) == at:
            with torch.no_grad():
                trainer.model.entity[:, 0] = value
            trainer.learner.reload()
        step(rows)

    trainer.step = spoiled


@fast_paths
@pytest.mark.parametrize("model", ["TransE", "TransD", "DistMult", "ComplEx", "TransR"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_first_bad_batch_is_named(path, model, at):
    trainer = Trainer(GRAPH, TrainConfig.from_dict({**TINY, "model": model, "kernels": path}))
    trainer.epoch(1)
    spoil(trainer, at)
    with pytest.raises(UserError, match=rf"the loss is nan in epoch 2, since batch {at} of 3: "):
        trainer.epoch(2)


@pytest.mark.parametrize("objective", ["1vsall", "kvsall"])
def test_losses_over_all_entities_are_watched_too(objective):
    settings = {**TINY, "model": "ComplEx", "sampler": "none", "objective": objective}
    trainer = Trainer(GRAPH, TrainConfig.from_dict(settings))
    spoil(trainer, 2)
    with pytest.raises(UserError, match=r"in epoch 1, since batch 2 of 3"):
        trainer.epoch(1)


@paths
@pytest.mark.parametrize("objective", ["margin", "logistic"])
def test_good_steps_are_counted_on_every_path(path, objective):
    model = new_model("TransE", 6, 2, 5)
    learner = new_kernels(path).learner(model, Learning(objective, 5.0, 0.01, 0.0))
    sums = torch.zeros(4, dtype=torch.float64)
    step = triples_of((0, 0, 1, 2, 1), (3, 1, 4, 3, 5))
    for good in (1, 2):
        learner.step(*step, sums)
        assert sums[3] == good
    with torch.no_grad():
        model.entity[3] = float("nan")
    learner.reload()
    learner.step(*step, sums)
    assert not sums[0].isfinite()  # a margin loss too says that its scores are no numbers
    assert sums[3] == 2
    learner.step(*triples_of((0, 0, 1, 2, 1)), sums)
    assert sums[3] == 2  # once bad, the sum stays bad


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"lr": 1e38}, "probably lr 1e+38 is too high: try a lower lr;"),
        ({"lr": 1e38, "model": "DistMult"}, "probably lr 1e+38 is too high"),
        (
            {"lr": 1e20, "model": "ComplEx", "penalty": 50, "penalty_norm": "n3"},
            "probably penalty 50 is too strong: try a lower one, or a lower lr;",
        ),
        (
            {"margin": 3e38, "kernels": "reference"},
            "in epoch 1, since batch 1 of 3: margin 3e+38 is too large",
        ),
    ],
)
def test_the_likely_cause(settings, cause):
    with pytest.raises(UserError) as error:
        train(GRAPH, **{**TINY, **settings})
    assert cause in str(error.value)


def test_the_best_parameters_before_are_kept_and_named(tmp_path, monkeypatch):
    epoch = Trainer.epoch

    def fails_in_the_third(self, number):
        if number == 3:
            spoil(self, 2)
        return epoch(self, number)

    settings = {**TINY, "lr": 0.01}
    train(GRAPH, out=tmp_path / "good", **{**settings, "epochs": 2})
    monkeypatch.setattr(Trainer, "epoch", fails_in_the_third)
    with pytest.raises(UserError) as error:
        train(GRAPH, out=tmp_path / "bad", **{**settings, "epochs": 4})
    kept = tmp_path / "bad" / "model.safetensors"
    assert "the loss is nan in epoch 3, since batch 2 of 3" in str(error.value)
    assert str(error.value).endswith(f", are in {kept}")
    good, left = load_file(tmp_path / "good" / "model.safetensors"), load_file(kept)
    assert all(torch.equal(good[name], table) for name, table in left.items())


def test_a_run_that_was_to_be_replaced_stays(tmp_path):
    train(GRAPH, out=tmp_path / "run", **TINY)
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="no parameters were kept before that"):
        train(GRAPH, out=tmp_path / "run", overwrite=True, **{**TINY, "lr": 1e38})
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("flag", ["pretrain", "generator_pretrain"])
def test_a_start_that_is_not_finite_is_refused(tmp_path, flag):
    train(GRAPH, out=tmp_path / "run", **TINY)
    file = tmp_path / "run" / "model.safetensors"
    tensors = load_file(file)
    tensors["entity"][1, 1] = float("inf")
    save_file(tensors, file, {"epoch": "1"})
    with pytest.raises(UserError, match="run: its parameters are not finite: that training"):
        train(GRAPH, **{**TINY, "sampler": "kbgan", flag: str(tmp_path / "run")})
