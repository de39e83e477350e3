"""Influences of ``explain`` against retraining: leave out one training fact at a time.

    python benchmarks/influence.py

The graph is made up: cities in countries in regions, with languages; a city has the region and the
language of its country. Some of the conclusions are held out; for each of these triples, every
training fact of its two entities is left out in turn and the model is trained anew from the same
start. Prints the rank correlation (Spearman) of the fall of the score with the estimate.
"""

from collections.abc import Iterator

import numpy as np

from nscaching import KnowledgeGraph, Run, TrainConfig, train
from nscaching.evaluation.explain import facts_of, influences

Triple = tuple[str, str, str]
PENALTY = {"DistMult": 0.02, "ComplEx": 0.02}


def made_up(seed: int = 0) -> tuple[list[Triple], list[Triple]]:
    """Return facts for training, and held-out conclusions of the rules."""
    random = np.random.default_rng(seed)
    facts: list[Triple] = []
    held_out: list[Triple] = []
    for c in range(6):
        country, region, language = f"country{c}", f"region{c % 3}", f"language{c % 4}"
        facts += [(country, "in", region), (country, "speaks", language)]
        for k in range(4):
            city = f"city{c}.{k}"
            facts.append((city, "in_country", country))
            for conclusion in ((city, "in", region), (city, "speaks", language)):
                (held_out if random.random() < 0.25 else facts).append(conclusion)
        other = f"country{(c + 1) % 6}"
        facts += [(country, "borders", other), (other, "borders", country)]
    return facts, held_out


def fitted(graph: KnowledgeGraph, model: str) -> Run:
    config = TrainConfig(
        model=model, sampler="none", dim=16, epochs=100, batch_size=1024, lr=0.03, device="cpu",
        threads=1, validate_every=0, penalty_norm="n3" if model in PENALTY else "l2",
        penalty=PENALTY.get(model, 0.0),
    )  # fmt: skip
    return train(graph, config)


def compared(model: str, targets: slice) -> Iterator[tuple[Triple, float, int]]:
    """Yield held-out triples, the correlation of estimate and fall, and the count of facts."""
    facts, held_out = made_up()
    names = sorted({name for h, _, t in facts + held_out for name in (h, t)})
    relations = sorted({relation for _, relation, _ in facts})
    lists = {"entities": names, "relations": relations, "split_seed": None}
    graph = KnowledgeGraph.from_triples(facts, **lists)
    run = fitted(graph, model)
    for target in held_out[targets]:
        triple = graph.ids([target])[0]
        own = facts_of(graph, triple)
        falls = []
        for fact in own:
            left = graph.train[(graph.train != fact).any(1)]
            again = fitted(KnowledgeGraph.from_triples(left, **lists), model)
            falls.append(run.score([target])[0] - again.score([target])[0])
        estimate = influences(run, triple, own)
        yield target, spearman(estimate, np.array(falls)), len(own)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    ranks = (values.argsort().argsort() for values in (one, other))
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> None:
    for model in ("ComplEx", "DistMult", "TransE"):
        found = list(compared(model, slice(None)))
        values = [value for _, value, _ in found]
        counts = sum(count for *_, count in found)
        each = ", ".join(f"{value:.2f}" for value in values)
        print(f"{model}: mean {np.mean(values):.2f} of {each}; {counts} trainings")


if __name__ == "__main__":
    main()
