"""Negatives made by a second model that learns to fool the first: KBGAN; igan.py has IGAN."""

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from nscaching.data.graph import KnowledgeGraph
from nscaching.kernels import AutogradLearner, Batch, Learning, Negatives, State, join, part, random
from nscaching.models import Model, build
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
    discriminator).
    """

    one_side = True
    has_generator = True
    judged = 1
    """The least draws of each triple that it learns from; the model learns from the first ones."""
    bonus = 0.0  # weight of the entropy beside the reward

    def prepare(self, graph: KnowledgeGraph) -> Draws:
        config = self.config
        name = self.own_generator or config.gan.generator
        self.generator = build(name, graph, config.dim, config.norm)
        self.generator.prepare(graph)
        self.generator.reset(torch.Generator().manual_seed(self.seed))
        if self.start is not None:
            self.begin(self.start)
        self.generator.to(self.device)
        learning = Learning("margin", config.margin, config.gan.generator_lr, weight_decay=0.0)
        asked = self.generator, learning  # against all entities, only autograd can learn
        self.scorer = AutogradLearner(*asked) if self.scores_all else self.kernels.scorer(*asked)
        self.in_torch = isinstance(self.scorer, AutogradLearner)
        self.sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        """Loss, reward and entropy, each a sum over triples, and the number of triples."""
        return super().prepare(graph)

    def begin(self, start: Mapping[str, Tensor]) -> None:
        """Give the generator the parameters of a run."""
        self.generator.load_state_dict(start)

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
        # What has no chance has a finite logarithm: 0 times it is 0.
        self.log_chances = torch.log_softmax(scores, 1).clamp_(min=-1e30)  # [B, C]
        self.chance = self.log_chances.exp()
        draws = max(self.count, self.judged)
        bits = self.kernels.bits(random.CHOICE, self.seed, self.tick, len(batch), draws)
        self.chosen = draw_by_chance(self.chance, random.uniform(bits))  # [B, draws]
        entity = self.offered.gather(1, self.chosen)
        self.drawn = batch.corrupt(replace_head, entity, entity)
        self.log_chance = self.log_chances.gather(1, self.chosen)
        self.entropy = -(self.chance * self.log_chances).sum(1, keepdim=True)  # [B, 1]
        first = entity[:, : self.count]
        return batch.corrupt(replace_head, first, first)

    def gains(self, reward: Tensor) -> Tensor:
        """Return rewards [B, draws] less a baseline: the mean of the batch."""
        return reward - reward.mean()

    def update(self, batch: Batch, model: Model) -> None:
        reward = self.kernels.reward(model, batch, self.drawn)  # [B, draws]
        gain = self.gains(reward)
        loss = -(gain * self.log_chance).sum() - self.bonus * self.entropy.sum()
        # ∂ log_softmax(f)_chosen / ∂ f_c = [c = chosen] − chance_c.
        pull = gain.sum(1, keepdim=True)
        if self.bonus:  # ∂ entropy / ∂ f_c = −chance_c·(log chance_c + entropy)
            pull = pull + self.bonus * (self.log_chances + self.entropy)
        slopes = (self.chance * pull).scatter_add_(1, self.chosen, -gain)
        assert self.drawn.replace_head is not None
        self.scorer.learn(batch, self.drawn.replace_head, self.offered, slopes)
        self.sums[:3] += torch.stack([loss, reward.mean(1).sum(), self.entropy.sum()]).double()
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
