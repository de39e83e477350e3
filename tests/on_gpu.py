"""Triton kernels on a real GPU behind tensors on the CPU: tests of twins run there as here."""

from __future__ import annotations

import copy
import dataclasses

import torch

from nscaching.kernels import CacheAccess, Contrast, Kernels, Rivals
from nscaching.kernels.batch import Batch, Negatives
from nscaching.kernels.gpu.kernels import TritonKernels
from nscaching.kernels.gpu.softmax_learner import TritonSoftmax
from nscaching.kernels.gpu.standing import is_fused
from nscaching.kernels.learner import Learner


def there(thing):
    """Return a copy on the GPU of a tensor, or of what holds tensors."""
    if isinstance(thing, torch.Tensor):
        return thing.cuda()
    if isinstance(thing, list | tuple):
        return type(thing)(there(part) for part in thing)
    if dataclasses.is_dataclass(thing):
        parts = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        return type(thing)(**{name: there(part) for name, part in parts.items()})
    return thing


def bring_back(sides, far_sides):
    """Copy the rows of caches from the GPU."""
    for near, far in zip(sides, far_sides, strict=True):
        near.ids.copy_(far.ids)


class RemoteLearner(Learner):
    """Learns on the GPU and brings the parameters back after every step."""

    def __init__(self, model, far_model, learner):
        self.model, self.far_model, self.learner = model, far_model, learner

    def step(self, batch: Batch, negatives: Contrast, sums) -> None:
        far_sums, far_negatives = there(sums), there(negatives)
        self.learner.step(there(batch), far_negatives, far_sums)
        sums.copy_(far_sums)
        self.model.load_state_dict(self.far_model.state_dict())
        if isinstance(negatives, Rivals) and negatives.cache is not None:
            bring_back(negatives.cache.sides, far_negatives.cache.sides)

    def scores(self, batch, replace_head, entity):
        return self.learner.scores(*there((batch, replace_head, entity))).cpu()

    def learn(self, batch, replace_head, entity, slopes):
        self.learner.learn(*there((batch, replace_head, entity, slopes)))
        self.model.load_state_dict(self.far_model.state_dict())

    def reload(self) -> None:
        self.far_model.load_state_dict(self.model.state_dict())
        self.learner.reload()

    def checkpoint(self):
        return self.learner.checkpoint()

    def restore(self, state) -> None:
        self.far_model.load_state_dict(self.model.state_dict())
        self.learner.restore(state)

    def __getattr__(self, name):
        return getattr(self.learner, name)


class RemoteKernels(TritonKernels):
    """Takes and gives tensors on the CPU."""

    def __init__(self):
        super().__init__()
        self.far_models = {}

    def far(self, model):
        """Return the model's copy on the GPU; one that learns there has its own parameters."""
        known = self.far_models.get(id(model))
        if known is None:
            return copy.deepcopy(model).cuda()
        return known[1]

    def learner(self, model, learning):
        far_model = copy.deepcopy(model).cuda()
        self.far_models[id(model)] = (model, far_model)  # the model, so that its id stays its own
        return RemoteLearner(model, far_model, super().learner(far_model, learning))

    def new_softmax_learner(self, model, learning):
        return TritonSoftmax(model, learning, TritonKernels())  # with all that it asks there

    def tail(self, entities, count, seed, tick):
        return super().tail(entities, count, seed, there(tick)).to(tick.device)

    def take(self, columns, seed, taken, size):
        far = there(taken)
        found = super().take(there(columns), seed, far, size).cpu()
        taken.copy_(far)
        return found

    def sample(self, below, count, seed, number):
        return super().sample(below, count, seed, there(number)).cpu()

    def draw(self, batch, chance, entities, seed, tick, caches=(), count=1):
        asked = there((batch, chance)), there((tick, list(caches)))
        drawn = super().draw(*asked[0], entities, seed, *asked[1], count)
        return Negatives(drawn.head.cpu(), drawn.tail.cpu(), drawn.replace_head.cpu())

    def bits(self, purpose, seed, tick, rows, count=1):
        return super().bits(purpose, seed, there(tick), rows, count).to(tick.device)

    def reward(self, model, batch, negatives):
        return super().reward(self.far(model), there(batch), there(negatives)).cpu()

    def new_elements(self, ids, keys, before, out):
        far = there((before, out))
        super().new_elements(there(ids), there(keys), *far)
        before.copy_(far[0])
        out.copy_(far[1])

    def refresh(self, asked):
        far_sides, is_known = there(list(asked.sides)), asked.is_known
        known = is_known and (lambda side, *ids: is_known(side, *(i.cpu() for i in ids)).cuda())
        super().refresh(
            CacheAccess(
                far_sides,
                there(list(asked.keys)),
                self.far(asked.model),
                asked.settings,
                asked.seed,
                there(asked.tick),
                known,
            )
        )
        bring_back(asked.sides, far_sides)

    def score_all(self, model, side, anchor, relation, entities=None):
        far_model = self.far(model)
        if far_model.form is None or far_model.form.name != "SHIFTED":
            return Kernels.score_all(self, model, side, anchor, relation, entities)
        return super().score_all(far_model, side, *there((anchor, relation, entities))).cpu()

    def stand(self, model, side, asked, width):
        if not is_fused(model):
            return Kernels.stand(self, model, side, asked, width)
        return super().stand(self.far(model), side, there(asked), width).cpu()

    def distances(self, query, rows, norm):
        return super().distances(there(query), there(rows), norm).cpu()

    def count(self, scores, answer, known, target=None, first=0):
        return super().count(*there((scores.detach(), answer, known, target)), first).cpu()
