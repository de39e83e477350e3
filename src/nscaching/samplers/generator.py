"""Negatives made by a second model that learns to fool the first: KBGAN and IGAN."""

from abc import abstractmethod

import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.data.index import Side
from nscaching.kernels import AutogradLearner, Batch, Learning, Negatives, State, join, part, random
from nscaching.models import Form, Model, build
from nscaching.samplers.base import SAMPLERS, Sampler
from nscaching.samplers.draws import Draws


def draw_by_chance(chance: Tensor, uniform: Tensor) -> Tensor:
    """Draw columns [B, K] of chances [B, C] by numbers [B, K] of (0, 1), with replacement.

    A column is drawn where the sum of the chances up to it first exceeds the number.
    """
    total = chance.cumsum(1)
    below = uniform * (total[:, -1:] * (1 - 1e-6))  # rounding must not lead beyond the last
    # A generator that diverged has non-finite chances: the trainer will raise the error.
    return torch.searchsorted(total, below, right=True).clamp_(max=chance.shape[1] - 1)


class Generating(Sampler):
    """A generator scores candidates and draws negatives by the softmax of its scores.

    It learns by REINFORCE: the reward of a negative is its score by the trained model (the
    discriminator), and the mean reward of the batch is the baseline.
    """

    one_side = True
    has_generator = True

    def prepare(self, graph: KnowledgeGraph) -> Draws:
        config = self.config
        self.generator = build(config.gan.generator, graph, config.dim, config.norm)
        self.generator.prepare(graph)
        self.generator.reset(torch.Generator().manual_seed(self.seed))
        if self.start is not None:
            self.generator.load_state_dict(self.start)
        self.generator.to(self.device)
        learning = Learning("margin", config.margin, config.gan.generator_lr, weight_decay=0.0)
        asked = self.generator, learning  # against all entities, only autograd can learn
        self.scorer = AutogradLearner(*asked) if self.scores_all else self.kernels.scorer(*asked)
        self.in_torch = isinstance(self.scorer, AutogradLearner)
        self.sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        """Loss, reward and entropy, each a sum over triples, and the number of triples."""
        return super().prepare(graph)

    def phase(self) -> object:
        return "generate"

    @abstractmethod
    def candidates(self, batch: Batch, replace_head: Tensor) -> tuple[Tensor, Tensor]:
        """Return candidates [B, C] for the replaced entity of each triple, and their scores.

        The scores have no gradient; ``scorer`` keeps what ``update`` needs of them.
        """

    def negatives(self, batch: Batch, model: Model) -> Negatives:
        replace_head = self.choose_head(batch)
        self.offered, scores = self.candidates(batch, replace_head)  # [B, C]
        log_chance = torch.log_softmax(scores, 1)  # [B, C]
        self.chance = log_chance.exp()
        bits = self.kernels.bits(random.CHOICE, self.seed, self.tick, len(batch), self.count)
        self.chosen = draw_by_chance(self.chance, random.uniform(bits))  # [B, count]
        entity = self.offered.gather(1, self.chosen)
        self.drawn = batch.corrupt(replace_head, entity, entity)
        self.log_chance = log_chance.gather(1, self.chosen)
        self.entropy = -(self.chance * log_chance.clamp(min=-1e30)).sum()
        return self.drawn

    def update(self, batch: Batch, model: Model) -> None:
        reward = self.kernels.reward(model, batch, self.drawn)  # [B, count]
        gain = reward - reward.mean()
        loss = -(gain * self.log_chance).sum()
        # ∂ log_softmax(f)_chosen / ∂ f_c = [c = chosen] − chance_c.
        slopes = (self.chance * gain.sum(1, keepdim=True)).scatter_add_(1, self.chosen, -gain)
        assert self.drawn.replace_head is not None
        self.scorer.learn(batch, self.drawn.replace_head, self.offered, slopes)
        self.sums[:3] += torch.stack([loss, reward.mean(1).sum(), self.entropy]).double()
        self.sums[3] += len(batch)

    def figures(self) -> dict[str, float]:
        """Return the generator's mean loss, reward and entropy (in nats) of a triple."""
        means = (self.sums[:3] / self.sums[3].clamp(min=1)).tolist()
        self.sums.zero_()
        return dict(zip(("generator_loss", "reward", "entropy"), means, strict=True))

    def state(self) -> dict[str, Tensor]:
        return {f"generator.{name}": t for name, t in self.generator.state_dict().items()}

    def checkpoint(self) -> State:
        optimizer = self.scorer.checkpoint()
        return {**super().checkpoint(), "sums": self.sums, **join(optimizer=optimizer)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.sums.copy_(state["sums"])
        self.scorer.restore(part(state, "optimizer"))


@SAMPLERS.register("kbgan")
class KBGAN(Generating):
    """Cai and Wang, 2018: the generator chooses among N1 uniform candidates."""

    def candidates(self, batch: Batch, replace_head: Tensor) -> tuple[Tensor, Tensor]:
        n1 = self.config.cache.n1
        if self.config.filter_known:
            candidates = self.draws.unknown_entities(batch, replace_head, n1)
        else:
            bits = self.kernels.bits(random.ENTITY, self.seed, self.tick, len(batch), n1)
            candidates = random.whole(bits, self.entities)
        return candidates, self.scorer.scores(batch, replace_head, candidates)


@SAMPLERS.register("igan")
class IGAN(Generating):
    """Wang et al., 2018: the generator gives a distribution over all entities."""

    scores_all = True
    scorer: AutogradLearner

    def candidates(self, batch: Batch, replace_head: Tensor) -> tuple[Tensor, Tensor]:
        """Score every entity for each triple: time and memory grow with the number of entities."""
        everyone = torch.arange(self.entities, device=self.device)
        triple = replace_head, batch.head, batch.relation, batch.tail
        scores = self.generator.score_all_corrupted(*triple, self.kernels.distances)
        if self.config.filter_known:
            as_head, as_tail = (
                self.draws.is_known(side, batch.key(side).unsqueeze(1), everyone) for side in Side
            )
            known = torch.where(replace_head.unsqueeze(1), as_head, as_tail)
            # Where all entities are known, known ones are drawn.
            known &= ~known.all(1, keepdim=True)
            scores = scores.masked_fill(known, float("-inf"))
        self.scorer.scored = scores
        return everyone.expand(len(batch), -1), scores.detach()

    def phase(self) -> object:
        """Other forms score the relations of a batch one by one."""
        steady = self.generator.form in (Form.DOT, Form.DISTANCE)
        return super().phase() if steady else None
