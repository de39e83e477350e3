"""Bias and variance of the cached softmax, with and without the head, on a model that was trained.

python benchmarks/estimator.py [--data fb15k237] [--epochs 5] [--device auto] [--tails 20]

Trains ComplEx with the cached softmax, then compares the estimates of log Z and of the gradients
by the queries of 256 triples with the exact values, for several N1 and K and many random tails.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
from softmax import PENALTY, SOFTMAX
from speed import machine, show
from torch import Tensor

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.data.index import Side
from nscaching.kernels import choose_device
from nscaching.training.trainer import Trainer

HEADS, TAILS = (0, 16, 64), (64, 128, 512, 1024, 2048)


def trained(graph: KnowledgeGraph, data: str, device: torch.device, epochs: int) -> Trainer:
    own = {"sampler": "nscaching", "objective": "softmax", "refresh": "top", "n1": 64, "tail": 512}
    settings = SOFTMAX | own | {"penalty": PENALTY[data], "device": device.type, "seed": 1}
    trainer = Trainer(graph, TrainConfig.from_dict(settings))
    for epoch in range(1, epochs + 1):
        trainer.epoch(epoch)
    return trainer


class Exact:
    """The exact scores [2B, |E|] of a batch, log Z, gradients by the queries, and cached rows."""

    def __init__(self, trainer: Trainer) -> None:
        trainer.triples.go_to(0, 3 * 1024)
        (_, batch), model = trainer.triples.take(256), trainer.model
        rivals = trainer.sampler.rivals(batch, model)
        scores, cached, answers = [], [], []
        for side in Side:
            anchor, answer = side.query(batch.head, batch.tail)
            scores.append(model.score_all(side, anchor, batch.relation))
            cached.append(rivals.cached(side))
            answers.append(answer)
        self.scores, self.answer = torch.cat(scores).detach(), torch.cat(answers)
        self.table = model.table().detach()
        self.log_z = self.scores.logsumexp(1)
        self.true = self.table[self.answer]
        self.gradient = self.scores.softmax(1) @ self.table - self.true
        order = self.scores.gather(1, torch.cat(cached)).argsort(1, descending=True)
        self.cached = torch.cat(cached).gather(1, order)  # the best first

    def share(self) -> tuple[float, float]:
        """Return how much of the false probability the cache holds, and of the best entities."""
        chance = self.scores.softmax(1).scatter(1, self.answer.unsqueeze(1), 0)
        held = chance.gather(1, self.cached).sum(1) / chance.sum(1)
        best = self.scores.topk(self.cached.shape[1], 1).indices
        marks = torch.zeros_like(self.scores, dtype=torch.bool).scatter(1, self.cached, True)
        return held.mean().item(), marks.gather(1, best).float().mean().item()

    def estimate(self, n1: int, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Return estimates of log Z [2B] and of the gradients [2B, D] with one tail."""
        entities = self.scores.shape[1]
        exact = torch.zeros_like(self.scores, dtype=torch.bool)
        exact.scatter_(1, torch.cat([self.cached[:, :n1], self.answer.unsqueeze(1)], 1), True)
        weight = torch.full_like(self.scores, -math.inf)
        weight[:, tail] = math.log(entities / len(tail))
        values = self.scores + weight.masked_fill_(exact, 0.0)
        return values.logsumexp(1), values.softmax(1) @ self.table - self.true


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237", choices=[*PENALTY])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tails", type=int, default=20)
    chosen = parser.parse_args()
    device = choose_device(chosen.device)
    torch.set_flush_denormal(True)  # as ``train`` does
    sys.stdout.write(f"{machine(device, math.nan)['device']}\n")
    graph = KnowledgeGraph.load(chosen.data)
    exact = Exact(trained(graph, chosen.data, device, chosen.epochs))
    held, best = exact.share()
    sys.stdout.write(
        f"{chosen.data} after {chosen.epochs} epochs: the cache holds {held:.1%} of the false "
        f"probability and {best:.1%} of the 64 best entities\n"
    )
    rows = []
    for n1 in HEADS:
        for size in TAILS:
            z, z_square, mean, error = 0.0, 0.0, 0.0, 0.0
            for _ in range(chosen.tails):
                tail = torch.randperm(len(graph.entities), device=device)[:size]
                log_z, gradient = exact.estimate(n1, tail)
                off = log_z - exact.log_z
                z, z_square = z + off / chosen.tails, z_square + off.square() / chosen.tails
                mean = mean + gradient / chosen.tails
                error += (gradient - exact.gradient).norm(dim=1) / chosen.tails
            size_of, off = exact.gradient.norm(dim=1), (mean - exact.gradient).norm(dim=1)
            rows.append({
                "N1": n1, "K": size, "bias of log Z": z.mean().item(),
                "deviation of log Z": (z_square - z.square()).clamp(min=0).sqrt().mean().item(),
                "bias of the gradient": (off / size_of).median().item(),
                "error of the gradient": (error / size_of).median().item(),
            })  # fmt: skip
    show("Of the exact size; medians over queries for gradients", rows)


if __name__ == "__main__":
    main()
