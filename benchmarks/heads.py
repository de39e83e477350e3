"""Which head of the cached softmax is good enough: DistMult on WN18 in dense matrices.

    python benchmarks/heads.py [--data wn18] [--epochs 10] [--seconds 300]

All scores of a step are computed, also where only those of head and tail count, so that an exact
head is possible and the share of the probability in the head is known. For a GPU: a step holds
[2B, |E|] scores several times. Prints the validation MRR of each epoch.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch
from torch import Tensor

from nscaching import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.kernels import random
from nscaching.kernels.nearby import Nearby

DIM, BATCH, N1, TAIL, PENALTY = 200, 1024, 64, 512, 1e-3
NEVER = float("-inf")
WAYS = {
    "full softmax": {"head": "all"},
    "exact head": {"head": "exact"},
    "cache": {},
    "cache, near 16": {"near": 16},
    "cache, lr 0.3": {"lr": 0.3},
    "cache, lr 0.3, near 16": {"lr": 0.3, "near": 16},
    "cache, near 16, start 0.001": {"near": 16, "start": 0.001},
    "full softmax, start 0.001": {"head": "all", "start": 0.001},
}


class Facts:
    """Training triples as queries (anchor, relation, answer): each triple is asked both ways."""

    def __init__(self, graph: KnowledgeGraph, device: str) -> None:
        self.graph, self.device = graph, torch.device(device)
        self.entities, self.relations = len(graph.entities), len(graph.relations)
        self.train, self.valid = self.both(graph.train), self.both(graph.valid)
        code = self.train[:, 0] * 2 * self.relations + self.train[:, 1]
        self.codes, self.key = code.unique(return_inverse=True)
        known = self.both(np.concatenate([graph.train, graph.valid, graph.test]))
        code = known[:, 0] * 2 * self.relations + known[:, 1]
        self.known_codes, order = code.sort()
        self.known = known[order, 2]

    def both(self, triples: np.ndarray) -> Tensor:
        asked = torch.from_numpy(triples.astype(np.int64)).to(self.device)
        h, r, t = asked.unbind(1)
        return torch.cat([asked, torch.stack([t, r + self.relations, h], 1)])

    @torch.no_grad()
    def mrr(self, entity: Tensor, relation: Tensor) -> float:
        """Rank the answers of the validation triples among all entities but other known answers."""
        found = []
        for asked in self.valid.split(1000):
            scores = (entity[asked[:, 0]] * relation[asked[:, 1]]) @ entity.T
            true = scores.gather(1, asked[:, 2:])
            code = asked[:, 0] * 2 * self.relations + asked[:, 1]
            first, last = (
                torch.searchsorted(self.known_codes, code, right=right) for right in (False, True)
            )
            row = torch.repeat_interleave(last - first)
            begin = (last - first).cumsum(0) - (last - first)
            place = torch.arange(len(row), device=self.device) - begin[row] + first[row]
            better = (scores[row, self.known[place]] > true[row, 0]).float()
            others = torch.zeros_like(true[:, 0]).index_add_(0, row, better)
            found.append(1 / ((scores > true).sum(1) - others + 1))
        return float(torch.cat(found).mean())


def train(
    facts: Facts,
    epochs: int,
    head: str = "cache",
    near: int = 0,
    lr: float = 0.1,
    start: float = 0.0,
) -> None:
    torch.manual_seed(1)
    device, entities = facts.device, facts.entities
    tables = []
    for rows in (entities, 2 * facts.relations):
        bound = math.sqrt(6 / (rows + DIM))
        tables.append((torch.rand(rows, DIM, device=device) * 2 - 1).mul_(bound).requires_grad_())
    entity, relation = tables
    optimizer = torch.optim.Adagrad(tables, lr, eps=1e-10, initial_accumulator_value=start)
    cache = torch.randint(entities, (len(facts.codes), N1), device=device)
    nearby = Nearby.of(facts.graph.train_index, entities, near, device)
    tick, shares = torch.zeros((), dtype=torch.int64, device=device), []
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(facts.train) // 2, device=device).split(BATCH):
            tick += 1
            rows = torch.cat([rows, rows + len(facts.train) // 2])
            asked, key = facts.train[rows], facts.key[rows]
            anchor, answer = asked[:, 0], asked[:, 2:]
            scores = (entity[anchor] * relation[asked[:, 1]]) @ entity.T
            now = scores.detach()
            weight = torch.zeros_like(now)  # logarithms
            if head != "all":
                weight.fill_(NEVER)
                tail = torch.randperm(entities, device=device)[:TAIL]
                weight[:, tail] = math.log(entities / TAIL)
                first = random.stream(1, tick, random.WALK[Side.TAIL])
                inside = now.topk(N1).indices if head == "exact" else cache[key]
                inside = torch.cat([inside, nearby.walk(first, anchor, key)], 1)
                weight.scatter_(1, inside, 0.0)
                cache[key] = now.masked_fill(weight == NEVER, NEVER).topk(N1).indices
                if epoch == 4 and int(tick) % 40 == 0:
                    chance = now.scatter(1, answer, NEVER).softmax(1)
                    shares.append(float((chance * (weight == 0)).sum(1).mean()))
            weight.scatter_(1, answer, 0.0)
            loss = torch.logsumexp(scores + weight, 1) - scores.gather(1, answer).squeeze(1)
            moved = entity[anchor], entity[answer.squeeze(1)], relation[asked[:, 1]]
            cubes = sum(part.abs().pow(3).sum() for part in moved)
            optimizer.zero_grad()
            (loss.sum() + PENALTY / 2 * cubes).backward()
            optimizer.step()
        print(f" {facts.mrr(entity.detach(), relation.detach()):.3f}", end="", flush=True)
    share = f"; {np.mean(shares):.0%} of the probability in the head at epoch 4" if shares else ""
    print(share, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="wn18")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    facts, end = Facts(KnowledgeGraph.load(options.data), options.device), time.time()
    end += options.seconds
    for name, way in WAYS.items():
        if time.time() < end:
            print(f"{name}:", end="", flush=True)
            train(facts, options.epochs, **way)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
