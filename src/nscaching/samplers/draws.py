"""The random choices that samplers share: head or tail, and entities of no known triple."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Side, head_probability
from nscaching.kernels import Batch, Kernels, Negatives, State
from nscaching.kernels.choose import select

SideRule = Literal["bernoulli", "uniform"]
Progress = Callable[[int, int], None]  # receives (done, total) while a cache is filled

# Pairs (key, entity) that a choice among all entities holds in memory at once.
CHOICE_PAIRS = 1 << 22

# A known triple is drawn again this often; the few that remain then choose among all entities.
REDRAWS = 10


class Draws:
    """Random numbers of one sampler, and the known triples that its negatives may have to avoid."""

    def __init__(
        self,
        index: Mapping[Side, AnswerIndex],
        entities: int,
        relations: int,
        *,
        side: SideRule,
        filter_known: bool,
        device: torch.device,
        seed: int,
        kernels: Kernels,
    ) -> None:
        self.entities, self.device, self.seed, self.kernels = entities, device, seed, kernels
        self.random = torch.Generator(device).manual_seed(seed)
        """For rare draws; the draws of a step are a function of seed and tick."""
        self.tick = torch.zeros((), dtype=torch.int64, device=device)  # number of the step
        chance = head_probability(index) if side == "bernoulli" else np.full(relations, 0.5)
        self.head_probability = torch.as_tensor(chance, device=device)  # [|R|]
        self.filter_known = filter_known
        self._known: dict[Side, Tensor] = {}
        self._exhausted: dict[Side, Tensor] = {}
        """For each key, whether every entity completes it to a training triple."""
        if filter_known:
            for asked, answers in index.items():
                self._known[asked] = torch.as_tensor(answers.pair_codes(entities), device=device)
                full = np.diff(answers.offsets) == entities
                self._exhausted[asked] = torch.as_tensor(full, device=device)

    def is_known(self, side: Side, key: Tensor, entity: Tensor) -> Tensor:
        """Tell whether an entity completes a key to a training triple (``filter_known`` only)."""
        code = key * self.entities + entity
        codes = self._known[side]
        place = torch.searchsorted(codes, code).clamp_(max=len(codes) - 1)
        return codes[place] == code

    def draw(self, batch: Batch, caches: Sequence[Tensor], count: int) -> Negatives:
        """Draw negatives from the caches of both sides, or without caches from all entities."""
        step = self.head_probability, self.entities, self.seed, self.tick
        return self.kernels.draw(batch, *step, caches, count)

    def choose_head(self, batch: Batch) -> Tensor:
        replace_head = self.kernels.coin(batch, self.head_probability, self.seed, self.tick)
        if not self.filter_known:
            return replace_head
        # Where one side has known triples only, the other side has to serve.
        no_head, no_tail = (self._exhausted[side][batch.key(side)] for side in Side)
        return torch.where(no_head == no_tail, replace_head, no_tail)

    def random_entities(self, *shape: int) -> Tensor:
        return torch.randint(self.entities, shape, generator=self.random, device=self.device)

    def tail(self, count: int) -> Tensor:
        """Return different entities [count] for a softmax, or all where there are fewer."""
        return self.kernels.tail(self.entities, count, self.seed, self.tick)

    def unknown_entities(self, batch: Batch, replace_head: Tensor, count: int) -> Tensor:
        """Draw entities [B, count] that make no training triple in place of head or tail."""
        chosen = torch.empty(len(batch), count, dtype=torch.int64, device=self.device)
        for side, mine in ((Side.HEAD, replace_head), (Side.TAIL, ~replace_head)):
            key = batch.key(side)[mine].repeat_interleave(count)
            entity = self.random_entities(len(key))
            for _ in range(REDRAWS):
                known = self.is_known(side, key, entity)
                entity = torch.where(known, self.random_entities(len(key)), entity)
            known = self.is_known(side, key, entity)
            entity[known] = self.choose_entities(side, key[known], 1, True).squeeze(1)
            chosen[mine] = entity.view(-1, count)
        return chosen

    def without_known(self, batch: Batch, drawn: Negatives) -> Negatives:
        """Replace the entities that make training triples."""
        assert drawn.replace_head is not None
        of_head, of_tail = (
            self.is_known(side, batch.key(side).unsqueeze(1), drawn.entity) for side in Side
        )
        known = torch.where(drawn.replace_head.unsqueeze(1), of_head, of_tail)
        other = self.unknown_entities(batch, drawn.replace_head, drawn.entity.shape[1])
        entity = torch.where(known, other, drawn.entity)
        return batch.corrupt(drawn.replace_head, entity, entity)

    def choose_entities(self, side: Side, key: Tensor, count: int, filter_known: bool) -> Tensor:
        """Choose ``count`` different entities for each key: key [n] → ids [n, count].

        With ``filter_known`` none of them makes a training triple; where fewer than ``count``
        entities remain, they repeat, and where none remains, any entity may be chosen.
        """
        everyone = torch.arange(self.entities, device=self.device)
        chosen = []
        for some in key.split(max(1, CHOICE_PAIRS // self.entities)):
            equal = torch.zeros(len(some), self.entities, device=self.device)
            every = some.unsqueeze(1), everyone
            known = self.is_known(side, *every) if filter_known else None
            chosen.append(select("uniform", equal, count, self.random, excluded=known))
        return torch.cat(chosen)

    def checkpoint(self) -> State:
        return {"tick": self.tick, "random": self.random.get_state()}

    def restore(self, state: State) -> None:
        self.tick.copy_(state["tick"])
        if len(state["random"]) == len(self.random.get_state()):
            self.random.set_state(state["random"].clone())
        else:  # the state of another kind of device does not fit
            self.random.manual_seed(self.seed + int(state["tick"]))
